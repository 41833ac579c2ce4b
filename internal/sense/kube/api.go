package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/workload"
)

const (
	apiConnect  = 3 * time.Second
	apiTimeout  = 10 * time.Second // for one page of a list
	apiBytes    = 32 << 20         // of one answer that is not a watch
	pageObjects = 250
)

// api asks the API server.
type api struct {
	state   *state
	node    string
	where   string
	core    *rest.RESTClient
	slices  *rest.RESTClient
	scaling *rest.RESTClient

	pods, services, endpoints *follower

	ask chan wondered

	mu       sync.Mutex
	wondered map[netip.Addr]time.Time // when to ask again
	err      map[string]error         // by what was asked for
}

// objects are those that are asked for, and how they are sent.
var objects, codecs = func() (*runtime.Scheme, serializer.CodecFactory) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme, autoscalingv2.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // a mistake of the program
		}
	}
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return s, serializer.NewCodecFactory(s)
}()

// params are how options are written into a request.
var params = runtime.NewParameterCodec(objects)

// findAPI is the API server that a pod's environment or a kubeconfig names; nil when
// neither does.
func findAPI(opt Options, node string, s *state) *api {
	quiet()
	config, err := apiConfig(opt)
	if config == nil && err == nil {
		return nil
	}
	a := &api{state: s, node: node, where: opt.Kubeconfig, ask: make(chan wondered, 256), wondered: map[netip.Addr]time.Time{}, err: map[string]error{}}
	if err == nil {
		a.where = clip(config.Host)
		err = a.connect(config, opt.Version)
	}
	a.failed("", err)
	a.pods = &follower{api: a, resource: "pods", source: workload.Pods, fields: "spec.nodeName=" + node}
	a.services = &follower{api: a, resource: "services", source: workload.Services}
	a.endpoints = &follower{api: a, resource: "endpointslices", source: workload.Slices}
	return a
}

func apiConfig(opt Options) (*rest.Config, error) {
	if opt.Kubeconfig != "" {
		return clientcmd.BuildConfigFromFlags("", opt.Kubeconfig)
	}
	if os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		return nil, nil
	}
	if _, err := os.Stat(tokenFile); errors.Is(err, os.ErrNotExist) {
		return nil, nil // a pod without a service account's token
	}
	return rest.InClusterConfig()
}

// quiet silences the log of client-go before it begins: what is wrong is reported with the source.
var quiet = sync.OnceFunc(func() { klog.SetLogger(logr.Discard()) })

func (a *api) connect(config *rest.Config, version string) (err error) {
	config = rest.CopyConfig(config)
	config.UserAgent = "slowray/" + version
	config.WarningHandler = rest.NoWarnings{}
	config.QPS, config.Burst = 5, 20
	config.DisableCompression = true // CPU is scarcer than the network to the API server
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.NegotiatedSerializer = codecs.WithoutConversion()
	config.Dial = (&net.Dialer{Timeout: apiConnect, KeepAlive: 30 * time.Second}).DialContext
	if config.ExecProvider != nil {
		config.ExecProvider.StdinUnavailable = true
	}
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return bounded{rt} })
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	for _, c := range []struct {
		to    **rest.RESTClient
		group schema.GroupVersion
	}{{&a.core, corev1.SchemeGroupVersion}, {&a.slices, discoveryv1.SchemeGroupVersion}, {&a.scaling, autoscalingv2.SchemeGroupVersion}} {
		config := rest.CopyConfig(config)
		config.GroupVersion, config.APIPath = &c.group, "/apis"
		if c.group.Group == "" {
			config.APIPath = "/api"
		}
		if *c.to, err = rest.RESTClientForConfigAndClient(config, client); err != nil {
			return err
		}
	}
	return nil
}

// bounded bounds the bodies of answers, but for those of watches, whose events are.
type bounded struct{ rt http.RoundTripper }

func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.rt.RoundTrip(req)
	if err == nil && req.URL.Query().Get("watch") == "" {
		resp.Body = http.MaxBytesReader(nil, resp.Body, apiBytes)
	}
	return resp, err
}

// start begins to watch.
func (a *api) start(ctx context.Context, running *sync.WaitGroup) {
	if a.core == nil {
		return
	}
	for _, f := range []*follower{a.pods, a.services, a.endpoints} {
		running.Go(func() { f.follow(ctx) })
	}
	running.Go(func() { a.answer(ctx) })
}

// failed keeps what went wrong with what was asked for last, and that it does no more.
func (a *api) failed(what string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		delete(a.err, what)
		return
	}
	a.err[what] = err
}

// source says whether it answers. Where only some of what is asked for is refused, the
// rest counts.
func (a *api) source() (src observe.KubeSource, partial []error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	src = observe.KubeSource{Name: nameAPI, Where: a.where}
	var whats []string
	same := map[string][]string{} // what fails for the same reason
	for _, what := range []string{"", "pods", "services", "endpointslices", "nodes", "events", "horizontalpodautoscalers", "persistentvolumeclaims"} {
		if err := a.err[what]; err != nil {
			if same[err.Error()] == nil {
				whats = append(whats, what)
			}
			same[err.Error()] = append(same[err.Error()], what)
		}
	}
	for _, what := range whats {
		err := a.err[what]
		if what != "" {
			err = fmt.Errorf("%s: %w", strings.Join(same[err.Error()], ", "), err)
		}
		if src.Error == "" {
			src.Error = line(err)
		}
		partial = append(partial, err)
	}
	return src, partial
}

// brief is an error of the API server without what everybody knows.
func brief(err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		return errors.New("forbidden (no right to list or watch)")
	case apierrors.IsUnauthorized(err):
		return errors.New("unauthorized")
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("no answer in time")
	}
	text := err.Error()
	if _, after, ok := strings.Cut(text, "\": "); ok { // Get "https://…": what happened
		text = after
	}
	return errors.New(printableLine(text, 200))
}

// get reads one object.
func get[T runtime.Object](ctx context.Context, client *rest.RESTClient, namespace, resource, name string) (T, error) {
	return read[T](ctx, client.Get().NamespaceIfScoped(namespace, namespace != "").Resource(resource).Name(name), &metav1.GetOptions{ResourceVersion: "0"})
}

// page reads one page of a list.
func page[T runtime.Object](ctx context.Context, client *rest.RESTClient, namespace, resource string, o metav1.ListOptions) (T, error) {
	return read[T](ctx, client.Get().NamespaceIfScoped(namespace, namespace != "").Resource(resource), &o)
}

// read sends a request. What answers with another kind of object has not answered.
func read[T runtime.Object](ctx context.Context, r *rest.Request, options runtime.Object) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	obj, err := r.SpecificallyVersionedParams(options, params, corev1.SchemeGroupVersion).Do(ctx).Get()
	out, ok := obj.(T)
	if err == nil && !ok {
		err = errors.New("it answers with another kind of object")
	}
	return out, err
}
