package clickhouse

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A server whose process is stopped, or whose machine is, still takes connections: the
// kernel does. Who waits for it waits until his time is over, and never comes to ask its
// replica. So where there is a replica it is asked first whether it answers at all.

const (
	// answerTime is how long a server may take to say anything.
	answerTime = 3 * time.Second
	// answeredFor is how long it is believed to, once it did; silentFor how long not.
	answeredFor, silentFor = 5 * time.Second, 10 * time.Second
)

// signs are when servers last answered, or did not.
type signs struct {
	mu       sync.Mutex
	answered map[string]time.Time
	silent   map[string]time.Time
}

func (s *signs) note(server string, answers bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answered == nil {
		s.answered, s.silent = map[string]time.Time{}, map[string]time.Time{}
	}
	delete(s.answered, server)
	delete(s.silent, server)
	if answers {
		s.answered[server] = time.Now()
	} else {
		s.silent[server] = time.Now()
	}
}

// known says what is known of a server.
func (s *signs) known(server string) (answers, silent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.answered[server]
	was, not := s.silent[server]
	return ok && time.Since(at) < answeredFor, not && time.Since(was) < silentFor
}

// errSilent is of a server that takes connections and says nothing.
var errSilent = errors.New("takes connections and does not answer")

// isSilent says whether a server says nothing; of one that is refused, or says that
// something is wrong, it is false.
func (db *DB) isSilent(ctx context.Context, server string) bool {
	answers, silent := db.signs.known(server)
	if answers || silent || ctx.Err() != nil {
		return silent
	}
	short, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	err := db.c.do(short, server, nil, []byte("SELECT 1"), nil)
	silent = err != nil && short.Err() != nil && ctx.Err() == nil && !notBegun(err)
	if err == nil || silent {
		db.signs.note(server, !silent)
	}
	return silent
}

// silentServers are those that say nothing now.
func (db *DB) silentServers() (names []string) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime+time.Second)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, replicas := range db.cfg.Shards {
		for _, server := range replicas {
			all.Go(func() {
				if db.isSilent(ctx, server) {
					mu.Lock()
					names = append(names, server)
					mu.Unlock()
				}
			})
		}
	}
	all.Wait()
	return names
}
