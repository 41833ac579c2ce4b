// Package prefork looks at servers that consist of a master process and the
// children it forks, which tell what they are by their process title.
//
// In: /proc and a process id. Out: titles, children, the environment, the time a
// process was started, its working directory, and the root directory its paths are
// relative to. It never concludes what a process is: that is for the package
// of each application.
package prefork
