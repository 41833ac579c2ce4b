package manual

import "fmt"

// Shells are those there is a script for.
var Shells = []string{"bash", "zsh", "fish"}

// Script is what a shell reads to complete the command line. It asks
// `slowray complete -- WORD…`, whose answer is a line for each word, with its help
// behind a tab; the line filesLine asks for the names of files, dirsLine for those of
// directories.
func Script(shell string) (string, error) {
	switch shell {
	case "bash":
		return bashScript, nil
	case "zsh":
		return zshScript, nil
	case "fish":
		return fishScript, nil
	}
	return "", fmt.Errorf("%q: must be bash, zsh or fish", shell)
}

const (
	filesLine = ":files"
	dirsLine  = ":dirs"
)

// Lines are a completion as the scripts read it.
func (c Completion) Lines() string {
	text := ""
	for _, w := range c.Candidates {
		text += w.Word + "\t" + w.Help + "\n"
	}
	if c.Files {
		text += filesLine + "\n"
	}
	if c.Dirs {
		text += dirsLine + "\n"
	}
	return text
}

const bashScript = `# bash completion of slowray: source it, or put it into
# /usr/share/bash-completion/completions/slowray
_slowray() {
	local line word kind program=slowray
	COMPREPLY=()
	type -P slowray >/dev/null || program=${COMP_WORDS[0]}
	local current=${COMP_WORDS[COMP_CWORD]}
	[[ $current == = ]] && current=
	while IFS= read -r line; do
		if [[ $line == ` + filesLine + ` || $line == ` + dirsLine + ` ]]; then
			kind=-f
			[[ $line == ` + dirsLine + ` ]] && kind=-d
			compopt -o filenames 2>/dev/null
			while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen $kind -- "$current")
		else
			COMPREPLY+=("${line%%$'\t'*}")
		fi
	done < <("$program" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _slowray slowray
`

const zshScript = `#compdef slowray
# zsh completion of slowray: put it as _slowray into a directory of $fpath, or
# source it after compinit.
_slowray() {
	local line files= dirs= program=slowray
	local -a list
	(( $+commands[slowray] )) || program=${words[1]}
	for line in "${(@f)$("$program" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
		[[ -z $line ]] && continue
		if [[ $line == ` + filesLine + ` ]]; then
			files=1
		elif [[ $line == ` + dirsLine + ` ]]; then
			dirs=1
		else
			local word=${line%%$'\t'*} help=${line#*$'\t'}
			list+=("${word//:/\\:}${help:+:$help}")
		fi
	done
	(( $#list )) && _describe slowray list
	[[ -n $files ]] && _files
	[[ -n $dirs ]] && _files -/
	return 0
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
	_slowray "$@"
elif (( $+functions[compdef] )); then
	compdef _slowray slowray
fi
`

const fishScript = `# fish completion of slowray: put it into ~/.config/fish/completions/slowray.fish
function __slowray_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l program slowray
    command -sq slowray; or set program $words[1]
    for line in ($program complete -- $words[2..-1] 2>/dev/null)
        if test "$line" = ` + filesLine + `
            __fish_complete_path (commandline -ct)
        else if test "$line" = ` + dirsLine + `
            __fish_complete_directories (commandline -ct)
        else
            printf '%s\n' $line
        end
    end
end
complete -c slowray -f -a '(__slowray_complete)'
`
