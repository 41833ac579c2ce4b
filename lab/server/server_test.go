package server

import (
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"
)

func TestPlan(t *testing.T) {
	for seed := range uint64(2000) {
		p := NewPlan(rand.New(rand.NewPCG(seed, 0)))
		if p.FrontPort == p.BackPort || p.FrontPort < 1024 || p.BackPort >= 10000 {
			t.Fatalf("seed %d: ports %d and %d", seed, p.FrontPort, p.BackPort)
		}
		if p.RangeBase < 10000 || p.RangeBase+51 > 65535 {
			t.Fatalf("seed %d: port range from %d", seed, p.RangeBase)
		}
		net := netip.MustParsePrefix(p.ServerAddr + "/30").Masked()
		client := netip.MustParseAddr(p.ClientAddr)
		if !net.Contains(client) || p.ClientAddr == p.ServerAddr {
			t.Fatalf("seed %d: %s and %s", seed, p.ServerAddr, p.ClientAddr)
		}
	}
	first, again := NewPlan(rand.New(rand.NewPCG(7, 0))), NewPlan(rand.New(rand.NewPCG(7, 0)))
	if first != again {
		t.Errorf("a seed does not repeat its plan: %+v, %+v", first, again)
	}
}

func TestConfigs(t *testing.T) {
	v := values{Setup: Healthy(NginxFPM), Dir: t.TempDir(), User: "nobody", Start: 32,
		Plan: Plan{ServerAddr: "10.1.2.1", FrontPort: 1234, BackPort: 2345}, ProxyAddr: "10.1.2.1"}
	v.NginxBacklog, v.Sleep = 77, 1500*time.Microsecond
	proxy := v
	proxy.Kind = NginxNginx
	tests := []struct {
		v    values
		text string
		want []string
	}{
		{v, nginxConf, []string{"listen 10.1.2.1:1234 backlog=77;", "fastcgi_pass 127.0.0.1:2345;", "worker_connections 4096;", "access_log " + v.Dir}},
		{proxy, nginxConf, []string{"proxy_pass http://10.1.2.1:2345;", `proxy_set_header Connection "";`}},
		{proxy, backendConf, []string{"listen 10.1.2.1:2345"}},
		{v, fpmConf, []string{"listen = 127.0.0.1:2345\n", "pm.max_children = 40\n", "pm.start_servers = 32\n"}},
		{v, page, []string{"<?php\nusleep(1500);\necho"}},
	}
	for _, tt := range tests {
		path, err := tt.v.write("file", tt.text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range tt.want {
			if !strings.Contains(string(got), want) {
				t.Errorf("%q is not in\n%s", want, got)
			}
		}
	}
}
