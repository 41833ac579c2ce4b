package anomaly

import "testing"

// TestOneService: of a single slow service the sentence needs no fractions.
func TestOneService(t *testing.T) {
	s := Shared{Component: Component{Dependency, "10.0.7.1:3306"}, Name: "mariadb:3306 on db-1", Signal: Total, Inside: 1, InsideOf: 1, OutsideOf: 296}
	if got, want := s.sentence(), "One service is slow, and of 297 with enough requests it alone calls 10.0.7.1:3306 (mariadb:3306 on db-1)."; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	s.Outside = 3
	if got, want := s.sentence(), "One service is slow, which calls 10.0.7.1:3306 (mariadb:3306 on db-1); so do 3 of the 296 others."; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
