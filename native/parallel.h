// Run tasks on several threads.
#pragma once

#include <functional>

namespace chmnet {

// Call task(number, thread) for every number from 0 to count - 1; thread is below `threads`.
// A task must not throw.
void parallel(long count, int threads, const std::function<void(long number, int thread)> &task);

}  // namespace chmnet
