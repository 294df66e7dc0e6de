"""Help that every room may use: files, text and checks of arguments."""
