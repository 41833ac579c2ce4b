package fleet

import "testing"

func TestCommonGroup(t *testing.T) {
	for _, c := range []struct{ a, b, want string }{
		{"/a/b", "/a/b", "/a/b"}, {"/a/b", "/a/c", "/a"}, {"/a/b", "/a/bc", "/a"}, {"/a", "/a/b", "/a"},
		{"/a", "/b", "/"}, {"/", "/b", "/"}, {"", "/b", ""}, {"", "", ""}, {"a/b", "a/c", "a"}, {"/a/b/c", "/a/x/c", "/a"},
	} {
		if got := CommonGroup(c.a, c.b); got != c.want {
			t.Errorf("%q and %q have %q in common, want %q", c.a, c.b, got, c.want)
		}
		if got := CommonGroup(c.b, c.a); got != c.want {
			t.Errorf("%q and %q have %q in common, want %q", c.b, c.a, got, c.want)
		}
	}
}
