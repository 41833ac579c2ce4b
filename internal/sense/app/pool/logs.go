package pool

import (
	"os"
	"path"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail"
)

// Follow opens a log at its present end. A log that is no file is noted.
func (in *Instance) Follow(name, what string) {
	for _, f := range in.logs {
		if f.path == name {
			return
		}
	}
	if len(in.logs) == maxLogs {
		in.Loss("logs of "+string(in.server.Kind)+" not followed", 1)
		return
	}
	f := &followed{path: name, what: what}
	in.logs = append(in.logs, f)
	if in.unentered {
		f.problem = "the root directory of its process cannot be entered"
		return
	}
	tail, err := logtail.Open(in.logRoot, name)
	f.tail, f.problem = tail, logtail.Reason(err)
}

// NotFollowed notes a log that cannot be read back.
func (in *Instance) NotFollowed(name, what, problem string) {
	if len(in.logs) < maxLogs {
		in.logs = append(in.logs, &followed{path: name, what: what, problem: problem})
	}
}

// FollowOutput follows what the master writes to its standard output (1) or
// error (2), where that is a file.
func (in *Instance) FollowOutput(fd, what string) {
	target, err := os.Readlink(in.file("fd/" + fd))
	name := map[string]string{"1": "standard output", "2": "standard error"}[fd]
	switch {
	case err != nil:
		in.NotFollowed(name, what, "it is not known where "+name+" goes")
	case !path.IsAbs(target) || strings.HasPrefix(target, "/dev/") || strings.HasSuffix(target, " (deleted)"):
		in.NotFollowed(name, what, "the log goes to "+name+", which is not a file")
	default:
		in.Follow(target, what)
	}
}

func (in *Instance) readLogs(window observe.Window) {
	left := in.MaxBytes
	for i, f := range in.logs {
		if f.tail == nil {
			in.Out.Logs = append(in.Out.Logs, observe.LogFile{Path: f.path, What: f.what, Problem: f.problem})
			continue
		}
		stats, err := f.tail.Read(in.all.Share(len(in.logs)-i), left/int64(len(in.logs)-i), func(line []byte) {
			if in.server.Classify == nil {
				return
			}
			if kind, figure := in.server.Classify(line); kind != "" {
				// The place in what was written stands for the time: formats of
				// times differ, and only whole seconds are distinguished.
				second := window.Start.Unix() + int64(f.tail.Share()*window.Seconds)
				in.counts.Add(kind, nil, second, figure, line)
			}
		})
		in.counts.Settle(stats.Scale)
		if err != nil {
			stats.Notes = append(stats.Notes, logtail.Reason(err))
		}
		left = max(0, left-stats.ReadBytes)
		in.Loss("bytes of "+f.path+" not read", stats.GrownBytes-stats.ReadBytes)
		in.Out.Logs = append(in.Out.Logs, stats.LogFile(f.path, f.what))
	}
	in.Out.Log = in.counts.Kinds()
}
