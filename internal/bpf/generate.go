package bpf

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -go-package bpf -output-stem connect_bpf Connect connect.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3 -I/usr/include
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -go-package bpf -output-stem profile_bpf Profile profile.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3 -I/usr/include
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -go-package bpf -output-stem socket_bpf Socket socket.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3 -I/usr/include
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -go-package bpf -output-stem request_bpf Request request.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3 -I/usr/include
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -go-package bpf -output-stem http2_bpf HTTP2 http2.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3 -I/usr/include
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -go-package bpf -output-stem clear_bpf Clear clear.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3 -I/usr/include
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -go-package bpf -output-stem flow_bpf Flow flow.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3 -I/usr/include
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -go-package bpf -output-stem stacks_bpf Stacks stacks.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3 -I/usr/include
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -go-package bpf -output-stem function_bpf Function function.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3 -I/usr/include
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -go-package bpf -output-stem dns_bpf DNS dns.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3 -I/usr/include
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -go-package bpf -output-stem drop_bpf Drop drop.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3 -I/usr/include
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -go-package bpf -output-stem callerror_bpf CallError callerror.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3 -I/usr/include
