"""The command line `helio`: one module per command. Slow imports happen when a command runs."""
