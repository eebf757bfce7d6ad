"""Commands that read this site's jobs as they are now or were."""
