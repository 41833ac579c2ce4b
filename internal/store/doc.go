// Package store keeps history on disk: what slowray record saw, second by
// second, in files that other programs can read.
//
// In: requests, sums of endpoints for each second, Observations and findings.
// Out: the same, by time, endpoint and process. It reads and writes files below
// one directory and nothing else, and it never judges.
//
// # On disk
//
//	DIR/lock                                   held by the one writer (flock)
//	DIR/seconds/2026-11-22/120000-120500.parquet   sums of each endpoint and second
//	DIR/requests/2026-11-22/120000-120500.parquet  requests, one row each
//	DIR/findings/2026-11-22/….parquet              what was found in each window
//	DIR/observations/2026-11-22/120000.json.zst    whole windows, as slowray why --save writes them
//	DIR/open/seconds.log, requests.log, findings.log   what is in no Parquet file yet
//
// Dates and times in names are UTC; a name tells the first and the last second
// in the file. A Parquet file appears whole or not at all (written beside, synced,
// renamed). What came since the last one is in a log of framed, checksummed
// entries that is synced each second: after kill -9 or a power cut the next writer
// reads it up to the last whole entry and goes on.
package store
