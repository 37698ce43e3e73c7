"""How likely each rank of a gang is to blame, by signs that need no words of a rule."""
