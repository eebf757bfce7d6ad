"""From what a policy decided to what people read: sentences, and the numbers behind them."""
