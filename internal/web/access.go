package web

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/language"
	"github.com/slowray/slowray/internal/web/page"
)

// minToken is the shortest token that is taken, in characters.
const minToken = 16

// NewToken is a token of 128 random bits.
func NewToken() string { return strings.ToLower(rand.Text()) }

// cookieName differs by token, so that the pages of two hosts that are reached
// under one name, as through ssh -L, do not take each other's cookie away.
func cookieName(token string) string {
	sum := sha256.Sum256([]byte("slowray cookie " + token))
	return "slowray_" + hex.EncodeToString(sum[:4])
}

// sameToken compares in a time that tells nothing.
func sameToken(given, want string) bool {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// headers are those of every answer.
func (s *server) headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", page.Policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=()")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// guarded lets through who may ask.
func (s *server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			writeError(w, http.StatusMethodNotAllowed, "nothing can be changed here: GET and HEAD only")
		case s.opt.Loopback && !s.ours(r.Host):
			writeError(w, http.StatusForbidden, "this is not one of my names: ask for localhost, or name it with --listen-name")
		case crossSite(r):
			writeError(w, http.StatusForbidden, "asked for by another site")
		case s.opt.Token == "":
			next.ServeHTTP(w, r)
		default:
			s.withToken(next, w, r)
		}
	})
}

// ours says whether a Host header is one that a request from this host has.
func (s *server) ours(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.ToLower(strings.Trim(name, "[]")), ".")
	if name == "localhost" || slices.ContainsFunc(s.opt.Names, func(n string) bool { return strings.EqualFold(n, name) }) {
		return true
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.Unmap().IsLoopback()
}

// crossSite says that a page of somebody else has sent the request (Fetch
// Metadata); to come here by a link is allowed.
func crossSite(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site":
		return r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document" || r.URL.Path != "/"
	}
	return false
}

// withToken asks for the token: in a header, in a cookie, or once in the address
// of the page, which then sets the cookie.
func (s *server) withToken(next http.Handler, w http.ResponseWriter, r *http.Request) {
	name := cookieName(s.opt.Token)
	if given := r.URL.Query().Get("token"); given != "" && r.URL.Path == "/" {
		if !sameToken(given, s.opt.Token) {
			s.refuse(w, r)
			return
		}
		http.SetCookie(w, &http.Cookie{Name: name, Value: s.opt.Token, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
			Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https", MaxAge: 30 * 24 * 3600})
		// The token must not stay in the address, which histories keep. Not a
		// redirect: after one from another site a strict cookie is not sent.
		to := "/"
		if lang := r.URL.Query().Get("lang"); slices.Contains(language.Names(), lang) {
			to += "?lang=" + lang
		}
		w.Header().Set("Refresh", "0; url="+to)
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Write([]byte("<!DOCTYPE html><title>slowray</title><p><a href=\"" + to + "\">To the page</a>\n"))
		return
	}
	if scheme, given, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") && sameToken(strings.TrimSpace(given), s.opt.Token) {
		next.ServeHTTP(w, r)
		return
	}
	for _, c := range r.CookiesNamed(name) {
		if sameToken(c.Value, s.opt.Token) {
			next.ServeHTTP(w, r)
			return
		}
	}
	s.refuse(w, r)
}

// refuse says that a token is needed, to a person as a page.
func (s *server) refuse(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="slowray"`)
	if r.URL.Path == "/" {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(http.StatusUnauthorized)
		w.Write([]byte("<!DOCTYPE html><title>slowray</title><p>This page needs the token that slowray printed when it began: open /?token=… with it.\n"))
		return
	}
	writeError(w, http.StatusUnauthorized, "a token is needed: Authorization: Bearer …, or open /?token=… first")
}

// URL is the address of the page with the token that opens it. One that listens
// everywhere is known by the host's name.
func URL(addr, token string) string {
	if at, err := netip.ParseAddrPort(addr); err == nil && at.Addr().IsUnspecified() {
		if name, err := os.Hostname(); err == nil && name != "" {
			addr = net.JoinHostPort(name, strconv.Itoa(int(at.Port())))
		}
	}
	u := url.URL{Scheme: "http", Host: addr, Path: "/"}
	if token != "" {
		u.RawQuery = url.Values{"token": {token}}.Encode()
	}
	return u.String()
}
