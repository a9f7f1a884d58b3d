"""A step as arrays: block tables and sampling parameters by row, the model run over them, tokens out."""
