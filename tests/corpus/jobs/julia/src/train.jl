println("trained")
