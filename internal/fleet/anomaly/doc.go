// Package anomaly judges what many endpoints do: which of them are abnormal, and
// what the abnormal have in common. In come fleet.Points in the order of time, and
// what is known of the hosts; out come Anomalies, and the Shared components that
// explain them. It touches no file, no network and no clock: the same points give
// the same answer.
//
// # What is abnormal
//
// Each endpoint of each host has a model of each Signal: its usual value, which each
// new one moves by a bounded step, so that an outlier moves it no more than any other
// (Huber), and its usual spread, from a running median of the deviations. The spread
// is split into what a request contributes and what a second contributes, so that it
// is right for few requests and for many. What recurs by time of day and day of the
// week is learned by service. Three windows are looked at: five seconds, forty, and
// forty against the usual value of the last days, which slow drift cannot follow. Of
// the five pieces of a window the two worst are left out: a pause, or a request with
// a lost segment, makes no anomaly.
//
// How rare a deviation is, is not computed from a normal distribution, which real
// times do not have, but looked up in what all endpoints of the fleet did until now:
// for each signal and window one histogram of deviations, beyond whose end the tail
// goes on as steep and as bent as it was there. A deviation counts when it is larger than
// the smallest effect that matters (see Options); P is the probability of such seconds if
// the effect were smaller than that, by three spreads or by half. The signals and windows of an endpoint are
// combined with the Cauchy combination test, which needs no independence of them. No
// request alone says more than 5 %.
//
// An alarm is raised when P, times all endpoints and all windows of a day, is below
// the false alarms a day that are asked for. While one is on, those endpoints are
// abnormal too which the procedure of Benjamini and Hochberg finds.
//
// # What they have in common
//
// See Explain.
package anomaly
