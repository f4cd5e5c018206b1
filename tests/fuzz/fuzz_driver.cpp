/*  fuzz_driver.cpp -- a main for a fuzz target without libFuzzer: random bytes, and files.

    usage: TARGET [--seconds S] [--runs N] [--seed N] [FILE...]
    Runs each FILE first, then inputs made from the seed until S seconds are over or N are done
    (0 = no bound; both 0 = only the files). Input i of a seed is always the same. What the target
    was running when it died is written to crash-SEED-I in the current folder.                   */
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

extern "C" int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static std::vector<unsigned char> input;
static char crash_name[64] = "crash-file";

/* Writes the input; only what a signal handler may call. */
static void on_death(int signal_number) {
    const int file = open(crash_name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (file >= 0 && write(file, input.data(), input.size()) >= 0) close(file);
    if (write(2, "\nfuzz: input kept in ", 21) < 0 ||
        write(2, crash_name, strlen(crash_name)) < 0 || write(2, "\n", 1) < 0)
        _exit(98);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static unsigned long long random_state;

static unsigned next_random() {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (unsigned)(random_state >> 24);
}

/* Half of the inputs are short: then many choices are the plainest. */
static void make_input(unsigned long seed, unsigned long i) {
    random_state = (seed + 1) * 0x9E3779B97F4A7C15ull ^ (i + 1) * 0xBF58476D1CE4E5B9ull;
    for (int k = 0; k < 4; ++k) (void)next_random();
    input.resize(next_random() % 2 ? next_random() % 40 : next_random() % 300);
    for (unsigned char &byte : input) byte = (unsigned char)next_random();
    snprintf(crash_name, sizeof crash_name, "crash-%lu-%lu", seed, i);
}

static int run_file(const char *name) {
    FILE *f = fopen(name, "rb");
    if (!f) {
        perror(name);
        return 1;
    }
    unsigned char buffer[4096];
    size_t n;
    input.clear();
    while ((n = fread(buffer, 1, sizeof buffer, f)) > 0) {
        input.insert(input.end(), buffer, buffer + n);
    }
    fclose(f);
    (void)LLVMFuzzerTestOneInput(input.data(), input.size());
    return 0;
}

int main(int argc, char **argv) {
    unsigned long runs = 0, seed = 1, i = 0, files = 0;
    double seconds = 0;
    const time_t began = time(NULL);
    for (int signal_number : {SIGABRT, SIGSEGV, SIGALRM, SIGBUS, SIGFPE}) {
        signal(signal_number, on_death);
    }
    for (int a = 1; a < argc; ++a) {
        const int more = a + 1 < argc;
        alarm(60);
        if (strcmp(argv[a], "--seconds") == 0 && more)
            seconds = atof(argv[++a]);
        else if (strcmp(argv[a], "--runs") == 0 && more)
            runs = strtoul(argv[++a], NULL, 10);
        else if (strcmp(argv[a], "--seed") == 0 && more)
            seed = strtoul(argv[++a], NULL, 10);
        else if (run_file(argv[a]) != 0)
            return 2;
        else
            ++files;
    }
    for (; (runs > 0 && i < runs) || (runs == 0 && seconds > 0); ++i) {
        if (seconds > 0 && difftime(time(NULL), began) >= seconds) break;
        make_input(seed, i);
        alarm(60); /* one that hangs is one that failed */
        (void)LLVMFuzzerTestOneInput(input.data(), input.size());
    }
    printf("%lu files, %lu inputs of seed %lu in %.0f s\n", files, i, seed,
           difftime(time(NULL), began));
    return 0;
}
