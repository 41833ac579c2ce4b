package cause

import "github.com/slowray/slowray/internal/observe"

// Unexplained: requests were harmed, and no other finding accounts for it. Its finding
// is made from the account of harm (View.Account), once all others are known.
const Unexplained ID = "unexplained"

var unexplained = Cause{
	ID:    Unexplained,
	Title: "Requests are harmed, and no known cause accounts for it",
	Layer: LayerApplication,
	Needs: []observe.Kind{observe.KindRequests},
	Check: func(*View) Result { return ruledOut("no harm is left that the findings do not account for") },
}
