"""Why jobs are where they are, in sentences: pure functions of the store's rows, for sodactl and for the page."""
