package watch

import (
	"context"
	"slices"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/apache"
	"github.com/slowray/slowray/internal/sense/app/gunicorn"
	"github.com/slowray/slowray/internal/sense/app/haproxy"
	"github.com/slowray/slowray/internal/sense/app/pool"
	"github.com/slowray/slowray/internal/sense/app/tomcat"
	"github.com/slowray/slowray/internal/sense/app/uwsgi"
)

// maxAppServers bounds how many application servers are looked into; a host
// with more has hundreds of containers.
const maxAppServers = 256

// beginAppServers finds the application servers and reads their configurations.
func (s *session) beginAppServers(seen []observe.Process) {
	for _, discover := range []func([]observe.Process, string) []*pool.Instance{
		apache.Discover, haproxy.Discover, uwsgi.Discover, gunicorn.Discover, tomcat.Discover,
	} {
		s.apps = append(s.apps, discover(seen, s.fs.Proc)...)
	}
	if len(s.apps) > maxAppServers {
		s.lose("application servers beyond 256", int64(len(s.apps)-maxAppServers))
		s.apps = slices.Clip(s.apps[:maxAppServers])
	}
	for _, in := range s.apps {
		in.Silent = s.opt.Silent
		in.Begin()
	}
}

func (s *session) sampleAppServers() {
	for _, in := range s.apps {
		in.Sample(s.fs.Activity)
	}
}

func (s *session) endAppServers(ctx context.Context) {
	for _, in := range s.apps {
		a, gaps, losses := in.End(ctx, s.out.Window)
		s.out.AppServers = append(s.out.AppServers, a)
		s.out.Gaps = append(s.out.Gaps, gaps...)
		s.out.Losses = append(s.out.Losses, losses...)
	}
}
