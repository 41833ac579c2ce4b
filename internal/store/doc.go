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
//	DIR/requests/2026-11-22/120000-120459.17.parquet   requests, one row each
//	DIR/seconds/2026-11-22/120000-120459.17.parquet    what each endpoint did in each second
//	DIR/seconds10/…, DIR/minutes5/…                    the same, summed up over 10 s and 5 min
//	DIR/findings/2026-11-22/….parquet                  what was found in each window
//	DIR/observations/2026-11-22/120000-120010.json.zst whole windows, as slowray why --save writes them
//	DIR/open/requests.18.log, seconds.18.log, …        what is in no Parquet file yet
//
// Dates and times in names are UTC. A name tells the first and the last second in
// the file, and the number of the log, or the first and last of the logs, whose
// entries it holds. So a log whose file is there already, and a file whose rows
// are in a larger one, are known for what they are: what a killed writer had no
// time to remove.
//
// A Parquet file appears whole or not at all (written next to, synced, renamed).
// What came since the last one is in a log of framed, checksummed entries that is
// synced each second: after kill -9 or a power cut the next writer reads it up to
// the last whole frame and goes on.
//
// Times are microseconds in all files; the parts of a request still add up to its
// total.
package store
