"""The dialog protocol: fold, owner, session, emitter and view, as classes without I/O, clock or randomness."""
