#include "parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

#if defined(__unix__) && !defined(CHMNET_OWN_THREADS)
#include <dlfcn.h>
#endif

namespace chmnet {
namespace {

struct Team {
    const std::function<void(long, int)> &task;
    const long count;
    std::atomic<long> next{0};
    std::atomic<int> members{0};
};

void work(void *data) {
    Team &team = *static_cast<Team *>(data);
    const int member = team.members.fetch_add(1);
    for (long number; (number = team.next.fetch_add(1)) < team.count;) team.task(number, member);
}

using Fork = void (*)(void (*)(void *), void *, unsigned, unsigned);

// The OpenMP runtime that PyTorch has loaded, if any. Its threads wait actively for a while after each operation:
// threads of our own would share the cores with them.
Fork find_fork() {
#if defined(__unix__) && !defined(CHMNET_OWN_THREADS)
    return reinterpret_cast<Fork>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
#else
    return nullptr;
#endif
}

}  // namespace

void parallel(long count, int threads, const std::function<void(long, int)> &task) {
    static const Fork fork = find_fork();
    Team team{task, count};
    const int members = static_cast<int>(std::min<long>(threads, count));
    if (members <= 1) return work(&team);
    if (fork) return fork(work, &team, static_cast<unsigned>(members), 0);
    std::vector<std::thread> others;
    others.reserve(members - 1);
    try {
        for (int member = 1; member < members; ++member) others.emplace_back(work, &team);
    } catch (const std::exception &) {  // no more threads to be had: those there are do the work
    }
    work(&team);
    for (std::thread &other : others) other.join();
}

}  // namespace chmnet
