//! Workers started together and their samples merged: the messages and the pipes they travel in.
