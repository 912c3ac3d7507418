//! Pure: a file per output; a Result in, bytes out.
