// An exception on its way through a function: with a return probe on it the
// program would end.
#include <cstdio>

struct Shop {
	static int price(int n) __attribute__((noinline, noclone));
	static int sell(int n) __attribute__((noinline, noclone));
};

int Shop::price(int n)
{
	if (n % 2)
		throw n;
	return n;
}

int Shop::sell(int n)
{
	int p = price(n);

	__asm__ volatile("" : "+r"(p));
	return p + 1;
}

int main()
{
	char line[64];

	setvbuf(stdout, 0, _IOLBF, 0);
	std::puts("ready");
	while (fgets(line, sizeof(line), stdin)) {
		for (int i = 0; i < 10; i++)
			try {
				Shop::sell(i);
			} catch (int) {
			}
		std::puts("done");
	}
}
