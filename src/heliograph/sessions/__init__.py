"""One client's conversation, whatever it speaks: sessions, and what a user may do in them. Pure engines."""
