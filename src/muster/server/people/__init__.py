"""Who may do what: tokens, secrets, and the vault that seals them."""
