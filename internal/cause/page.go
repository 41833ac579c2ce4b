package cause

// Doc is what a cause's page in docs/causes says in words; what the
// declaration says by itself, and which incidents of the lab plant it, is added
// by the generator. Plain sentences, with the thresholds that the check uses.
type Doc struct {
	About string    // what it is, and how it makes requests slow: two to four sentences
	See   []Symptom // what people see of it first
	Known []string  // how slowray knows: a measured fact each, with its threshold
	Not   []string  // what looks like it and is no finding
	Mend  string    // what to do about it
	// Unplanted says why no incident of the lab plants it; empty where one does.
	Unplanted string
}

// Symptom is what a person sees before anything was measured. The index of the
// pages goes by them.
type Symptom string

// The symptoms.
const (
	SeeErrors     Symptom = "Clients get errors: 5xx, refused or reset connections"
	SeeNoAnswer   Symptom = "Clients get no answer: they time out, or give up"
	SeeHang       Symptom = "Some requests hang for ever"
	SeeConnecting Symptom = "New connections take 1, 3 or 7 seconds or fail, open ones are quick"
	SeeTimer      Symptom = "A few requests take 200 ms and more, the others are quick"
	SeeForty      Symptom = "Requests take about 40 ms more than they should"
	SeeLarge      Symptom = "Large answers are slow, small ones are quick"
	SeeSomeEnds   Symptom = "Only some clients are slow: far ones, or those of one network"
	SeeFull       Symptom = "All is slow, and the CPUs are full"
	SeeIdle       Symptom = "All is slow, and the CPUs have nothing to do"
	SeeOneCPU     Symptom = "One CPU or thread is full, and the others have nothing to do"
	SeePlateau    Symptom = "More clients bring no more answers"
	SeeWaves      Symptom = "All requests stand still for moments, then go on at once"
	SeeCalls      Symptom = "Requests that need another service are slow: a database, a cache, an API"
	SeeDies       Symptom = "Processes or containers end, or are killed"
	SeeStart      Symptom = "Slow after a start or a deployment"
	SeeLogs       Symptom = "A log, or the kernel's, complains"
	SeeTools      Symptom = "Tools show something alarming, and nobody waits"
)

// Symptoms lists them in the order of the index.
func Symptoms() []Symptom {
	return []Symptom{SeeErrors, SeeNoAnswer, SeeHang, SeeConnecting, SeeTimer, SeeForty, SeeLarge, SeeSomeEnds, SeeFull, SeeIdle,
		SeeOneCPU, SeePlateau, SeeWaves, SeeCalls, SeeDies, SeeStart, SeeLogs, SeeTools}
}

// String names the layer as the pages do.
func (l Layer) String() string {
	switch l {
	case LayerPath:
		return "the network between the two ends"
	case LayerNetfilter:
		return "packet filter and connection tracking"
	case LayerSocket:
		return "sockets and their queues"
	case LayerApplication:
		return "the application"
	case LayerCall:
		return "calls to other services"
	case LayerMachine:
		return "the machine: CPU, memory, disk"
	}
	return "unknown"
}
