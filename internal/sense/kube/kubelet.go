package kube

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/workload"
)

const (
	connectTimeout = 200 * time.Millisecond // on loopback
	kubeletTimeout = 3 * time.Second        // for the whole answer
	maxToken       = 64 << 10
)

// kubeletLimits is what an answer may take: 110 pods are about 2 MB.
var kubeletLimits = budget.Limits{Bytes: 32 << 20, Wall: kubeletTimeout}

// Where a pod finds what its service account may show (k8s.io/client-go/rest).
const (
	tokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	caFile    = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
)

// kubelet asks the kubelet of this node for its pods.
type kubelet struct {
	state  *state
	url    string
	token  string // file of the one to show; empty on the read-only port
	client *http.Client

	looking sync.Mutex

	mu    sync.Mutex
	pods  map[string]*pod
	known time.Time
	err   error
}

// findKubelet finds the read-only port of a kubelet, else in a pod the one that wants to
// know who asks; nil where neither is there.
func findKubelet(ctx context.Context, opt Options, node string, s *state) *kubelet {
	port := opt.KubeletPort
	if port == 0 {
		port = readOnlyPort
	}
	at := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	dialer := net.Dialer{Timeout: connectTimeout}
	conn, err := dialRoot(ctx, &dialer, "tcp", at)
	if conn != nil {
		conn.Close()
	}
	if err == nil || errors.Is(err, errNotRoots) { // which the report says
		return &kubelet{state: s, url: "http://" + at + "/pods", client: client(nil, dialRoot)}
	}
	pem, err := budget.Head(opt.Root+caFile, 1<<20)
	if err != nil {
		return nil // not in a pod
	}
	// The certificate of a kubelet is often its own: a token is not shown to whoever cannot
	// prove to be of this cluster.
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	host := os.Getenv("NODE_IP")
	if host == "" {
		host = node
	}
	return &kubelet{state: s, url: "https://" + net.JoinHostPort(host, strconv.Itoa(cmp.Or(opt.KubeletTLS, kubeletPort))) + "/pods", token: opt.Root + tokenFile,
		client: client(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, func(ctx context.Context, d *net.Dialer, network, at string) (net.Conn, error) {
			return d.DialContext(ctx, network, at)
		})}
}

func client(tls *tls.Config, dial func(context.Context, *net.Dialer, string, string) (net.Conn, error)) *http.Client {
	dialer := &net.Dialer{Timeout: kubeletTimeout}
	return &http.Client{
		Transport: &http.Transport{DialContext: func(ctx context.Context, network, at string) (net.Conn, error) { return dial(ctx, dialer, network, at) }, TLSClientConfig: tls, TLSHandshakeTimeout: kubeletTimeout,
			MaxResponseHeaderBytes: 64 << 10, IdleConnTimeout: time.Minute, Proxy: nil},
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("it sends elsewhere") },
	}
}

// look asks once.
func (k *kubelet) look(ctx context.Context) error {
	k.looking.Lock()
	defer k.looking.Unlock()
	return k.ask(ctx)
}

// again asks unless somebody does already. Its source says why it does not answer.
func (k *kubelet) again(ctx context.Context) {
	if k.looking.TryLock() {
		defer k.looking.Unlock()
		_ = k.ask(ctx)
	}
}

func (k *kubelet) ask(ctx context.Context) error {
	now := time.Now()
	pods, err := k.list(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err = err; err != nil {
		return err
	}
	k.state.listed(workload.Kubelet, k.pods, pods, k.known, now)
	k.pods, k.known = pods, now
	k.state.index.Horizon(workload.Kubelet, now.Add(lease).UnixNano())
	return nil
}

func (k *kubelet) list(ctx context.Context) (map[string]*pod, error) {
	ctx, cancel := context.WithTimeout(ctx, kubeletTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url, nil)
	if err != nil {
		return nil, err
	}
	if k.token != "" {
		token, err := budget.Head(k.token, maxToken)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	resp, err := k.client.Do(req)
	if err != nil {
		return nil, cause(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("answers %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	d := json.NewDecoder(budget.New(ctx, kubeletLimits).Reader(resp.Body))
	pods := map[string]*pod{}
	if err := items(d, func() error {
		var p corev1.Pod
		if err := d.Decode(&p); err != nil {
			return err
		}
		if out := podOf(&p); out.UID != "" && len(pods) < maxPods {
			pods[out.UID] = out
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("its list of pods: %w", err)
	}
	return pods, nil
}

// items goes to each of the items of a list in JSON, one in memory at a time.
func items(d *json.Decoder, each func() error) error {
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errors.Join(err, errors.New("no list"))
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		if key != "items" {
			var skip json.RawMessage
			if err := d.Decode(&skip); err != nil {
				return err
			}
			continue
		}
		switch t, err := d.Token(); {
		case err != nil:
			return err
		case t == nil: // null: there is none
			return nil
		case t != json.Delim('['):
			return errors.New("items are no list")
		}
		for d.More() {
			if err := each(); err != nil {
				return err
			}
		}
		_, err = d.Token()
		return err
	}
	return errors.New("no items")
}

// cause leaves out of an error of a client what it was asked for, which is known.
func cause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		var op *net.OpError
		if errors.As(err, &op) && !errors.As(inner, &op) {
			return err
		}
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("no answer within %s", kubeletTimeout)
		}
		err = inner
	}
}

// source says whether it answers.
func (k *kubelet) source() observe.KubeSource {
	k.mu.Lock()
	defer k.mu.Unlock()
	return observe.KubeSource{Name: nameKubelet, Where: strings.TrimSuffix(k.url, "/pods"), Error: line(k.err)}
}
