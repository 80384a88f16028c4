"""What makes many nodes one server: views here, and later all that is decided by what a view contains. Engines."""
