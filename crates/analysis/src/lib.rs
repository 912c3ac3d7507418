//! Pure: slopes with intervals, the line, validity of stages, the search for the breaking point.
