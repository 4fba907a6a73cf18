"""Small changes of the compiler, each of which a test has to notice."""
