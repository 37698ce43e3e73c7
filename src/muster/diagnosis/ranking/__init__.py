"""How likely each rank of a gang is to blame, by signs that do not depend on the words of a rule."""
