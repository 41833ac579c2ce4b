package simulate

import (
	"fmt"
	"math"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// fewestRequests are needed of an endpoint to take its shape.
const fewestRequests = 100

// Shapes reads a recorded history and gives the shape of the requests of each endpoint
// that is served there: how long, by which parts, how they scatter, how many. The
// services of a simulated fleet take one after the other.
func Shapes(r *store.Reader) ([]Shape, error) {
	list, err := r.Endpoints(store.Query{Side: observe.Served})
	if err != nil {
		return nil, err
	}
	var shapes []Shape
	for i := range list {
		e := &list[i].Endpoint
		if e.Requests < fewestRequests {
			continue
		}
		n := float64(e.Requests)
		s := Shape{
			OwnUS: e.SumNS(observe.Server) / n / 1000, Errors: float64(e.Errors) / n,
			Rate: n / max(list[i].Last.Sub(list[i].First).Seconds(), 1),
		}
		p50, p99 := float64(e.Total.Quantile(0.5)), float64(e.Total.Quantile(0.99))
		s.Sigma = min(max(math.Log(max(p99, 1)/max(p50, 1))/2.326, 0.1), 1.5)
		if e.Split != nil && e.Split.ServerNS > 0 {
			own := 0.0
			for part := range observe.NumServerParts {
				if part != observe.ServerCall {
					s.Split[part] = max(float64(e.Split.Parts[part.String()].SumNS), 0)
					own += s.Split[part]
				}
			}
			s.OwnUS *= own / float64(e.Split.ServerNS)
			for part := range s.Split {
				s.Split[part] /= max(own, 1)
			}
		} else {
			s.Split[observe.ServerCPU] = 1
		}
		if s.OwnUS > 0 {
			shapes = append(shapes, s)
		}
	}
	if len(shapes) == 0 {
		return nil, fmt.Errorf("no endpoint was served %d times there", fewestRequests)
	}
	return shapes, nil
}
