package kube

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/slowray/slowray/internal/sense/workload"
)

const (
	leastBackOff = time.Second
	mostBackOff  = time.Minute
	// A watch is asked to end after 5 to 10 minutes, so that not all end at once.
	leastWatch = 5 * time.Minute
	// maxPages bounds a list: 64,000 objects.
	maxPages = 256
)

// follower lists a resource and then watches it, over and over.
type follower struct {
	api      *api
	resource string
	source   workload.Source
	fields   string

	version string    // of what was heard last
	heard   time.Time // when that was
	ok      atomic.Bool
	listed  atomic.Bool
}

// synced says that what changes is heard of.
func (f *follower) synced() bool { return f.ok.Load() }

func (f *follower) client() *rest.RESTClient {
	if f.resource == "endpointslices" {
		return f.api.slices
	}
	return f.api.core
}

// follow goes on until ctx is done. After what went wrong it waits, longer each time.
func (f *follower) follow(ctx context.Context) {
	wait := leastBackOff
	for ctx.Err() == nil {
		began := time.Now()
		err := f.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil && time.Since(began) > leastBackOff {
			continue // it was asked to end, and goes on at once
		}
		f.lost()
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			f.version = "" // too old: all anew
			err = nil
		}
		if err != nil {
			f.api.failed(f.resource, brief(err))
		}
		if wait *= 2; err == nil || time.Since(began) > mostBackOff {
			wait = leastBackOff
		}
		wait = min(wait, mostBackOff)
		select {
		case <-ctx.Done():
		case <-time.After(wait/2 + rand.N(wait)):
		}
	}
}

// lost says that what was said holds only until what was heard last.
func (f *follower) lost() {
	if f.ok.Swap(false) {
		f.api.state.index.Horizon(f.source, f.heard.UnixNano())
	}
}

// once lists, where that has to be, and watches until the watch ends.
func (f *follower) once(ctx context.Context) error {
	if f.version == "" {
		if err := f.list(ctx); err != nil {
			return err
		}
	}
	f.api.failed(f.resource, nil)
	timeout := leastWatch + rand.N(leastWatch)
	seconds := int64(timeout.Seconds())
	// A server that does not end it is left.
	watching, cancel := context.WithTimeout(ctx, timeout+time.Minute)
	defer cancel()
	o := metav1.ListOptions{Watch: true, ResourceVersion: f.version, FieldSelector: f.fields, AllowWatchBookmarks: true, TimeoutSeconds: &seconds}
	w, err := f.client().Get().Resource(f.resource).SpecificallyVersionedParams(&o, params, corev1.SchemeGroupVersion).Watch(watching)
	if err != nil {
		return err
	}
	defer w.Stop()
	f.heard = time.Now()
	f.ok.Store(true)
	f.api.state.index.Horizon(f.source, workload.Always)
	for {
		select {
		case <-watching.Done():
			return watching.Err()
		case e, open := <-w.ResultChan():
			if !open {
				f.heard = time.Now() // it ended: until now it was whole
				return nil
			}
			if err := f.event(e); err != nil {
				return err
			}
		}
	}
}

func (f *follower) event(e watch.Event) error {
	f.heard = time.Now()
	if e.Type == watch.Error {
		return apierrors.FromObject(e.Object)
	}
	m, err := meta.Accessor(e.Object)
	if err != nil {
		return fmt.Errorf("an event of another kind: %w", err)
	}
	f.version = m.GetResourceVersion()
	if e.Type != watch.Bookmark {
		f.api.state.said(e.Object, f.heard, e.Type == watch.Deleted)
	}
	return nil
}

// list reads all of them, page by page.
func (f *follower) list(ctx context.Context) error {
	o := metav1.ListOptions{FieldSelector: f.fields, Limit: pageObjects}
	now := time.Now()
	seen := map[string]bool{}
	for range maxPages {
		list, keys, err := f.page(ctx, o, now)
		if err != nil {
			return err
		}
		for _, k := range keys {
			seen[k] = true
		}
		if o.Continue = list.GetContinue(); o.Continue == "" {
			f.version = list.GetResourceVersion()
			f.api.state.only(f.source, seen, f.heard, now)
			f.heard = time.Now()
			f.listed.Store(true)
			return nil
		}
	}
	return errors.New("the list has no end")
}

// page reads one page and says what is in it.
func (f *follower) page(ctx context.Context, o metav1.ListOptions, now time.Time) (metav1.ListInterface, []string, error) {
	var keys []string
	say := func(obj runtime.Object) { keys = append(keys, f.api.state.said(obj, now, false)) }
	switch f.source {
	case workload.Pods:
		l, err := page[*corev1.PodList](ctx, f.client(), "", f.resource, o)
		if err != nil {
			return nil, nil, err
		}
		for i := range l.Items {
			say(&l.Items[i])
		}
		return l, keys, nil
	case workload.Services:
		l, err := page[*corev1.ServiceList](ctx, f.client(), "", f.resource, o)
		if err != nil {
			return nil, nil, err
		}
		for i := range l.Items {
			say(&l.Items[i])
		}
		return l, keys, nil
	}
	l, err := page[*discoveryv1.EndpointSliceList](ctx, f.client(), "", f.resource, o)
	if err != nil {
		return nil, nil, err
	}
	for i := range l.Items {
		say(&l.Items[i])
	}
	return l, keys, nil
}

// said takes an object that the API server told of, and gives the key that it is kept by.
func (s *state) said(obj runtime.Object, now time.Time, gone bool) (key string) {
	switch o := obj.(type) {
	case *corev1.Pod:
		p := podOf(o)
		var end time.Time
		if gone {
			end = now
		}
		s.podSaid(workload.Pods, p, now, end)
		return p.UID
	case *corev1.Service:
		return s.serviceSaid(o, now, gone)
	case *discoveryv1.EndpointSlice:
		return s.sliceSaid(o, now, gone)
	}
	return ""
}

// only ends what was said before and is not in a list, which was so until a time.
func (s *state) only(src workload.Source, seen map[string]bool, known, now time.Time) {
	switch src {
	case workload.Pods:
		s.mu.Lock()
		var over []*pod
		for uid, p := range s.pods {
			if p.rank == rank[src] && p.gone.IsZero() && !seen[uid] {
				over = append(over, p)
			}
		}
		s.mu.Unlock()
		for _, p := range over {
			s.podGone(src, p, known, now)
		}
	case workload.Services:
		s.servicesAre(seen, known)
	case workload.Slices:
		s.slicesAre(seen, known)
	}
}
