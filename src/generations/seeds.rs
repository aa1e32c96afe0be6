//! Statistics of zones of rows, planted in the file with them.
