"""Bodies against schemas: in a process of its own, because body and schema may be hostile and take for ever."""
