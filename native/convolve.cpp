// How the work is cut up.
//
// A four-dimensional kernel is a matrix: rows are its taps over (d1, d3), columns its taps over (d2, d4). For every
// position (d1, d3) of the result, first each column's weighted sum of the planes (d2, d4) around is made, without
// any shift inside the plane, which is a small matrix product; then these sums are shifted and added up.
//
// A kernel that does not change when d1 and d3 are turned round together, nor when d2 and d4 are, needs only half of
// the rows and half of the columns: planes that share a row are added up first, and sums that belong to two columns
// are shifted twice. The psi and iso kernels of Hough matching are such kernels: 169 products instead of 625.
//
// Rows and columns of zeros are left out. A center-pivot kernel has 9 of each, of which 5 are needed: 25 products.
#include "convolve.h"

#include <algorithm>
#include <cstring>

#include "groups.h"
#include "parallel.h"
#include "planes.h"

namespace chmnet {
namespace {

// The kernels as matrices, one row for each tap (or pair of taps) over (d1, d3).
class Matrices {
  public:
    explicit Matrices(const Connections &connections) : connections_(connections) {
        const long *taps = connections.taps;
        row_taps_ = taps[0] * taps[2];
        column_taps_ = taps[1] * taps[3];
        halved = true;
        for (long number = 0; number < connections.count && halved; ++number) halved = is_symmetric(number);
        rows = halved ? (row_taps_ + 1) / 2 : row_taps_;
        const long all_columns = halved ? (column_taps_ + 1) / 2 : column_taps_;
        used_.resize(connections.count * rows);
        place_of_column.assign(all_columns, -1);
        for (long column = 0; column < all_columns; ++column)
            for (long number = 0; number < connections.count; ++number)
                for (long row = 0; row < rows; ++row)
                    if (tap(number, row, column) != 0.0f) {
                        used_[number * rows + row] = true;
                        if (place_of_column[column] < 0) place_of_column[column] = columns++;
                    }
        values_.resize(connections.count * rows * columns);
        for (long number = 0; number < connections.count; ++number)
            for (long row = 0; row < rows; ++row)
                for (long column = 0; column < all_columns; ++column)
                    if (const long place = place_of_column[column]; place >= 0)
                        values_[(number * rows + row) * columns + place] = tap(number, row, column);
    }

    const float *row(long number, long row) const { return &values_[(number * rows + row) * columns]; }
    bool is_used(long number, long row) const { return used_[number * rows + row]; }

    bool halved;
    long rows, columns = 0;             // columns: those that are not zero in every kernel
    std::vector<long> place_of_column;  // among them, or -1

  private:
    float tap(long number, long row, long column) const {
        const long *taps = connections_.taps;
        const long first = row / taps[2], third = row % taps[2], second = column / taps[3], last = column % taps[3];
        return connections_.kernels[(((number * taps[0] + first) * taps[1] + second) * taps[2] + third) * taps[3] +
                                    last];
    }

    bool is_symmetric(long number) const {
        for (long row = 0; row < row_taps_; ++row)
            for (long column = 0; column < column_taps_; ++column) {
                const float value = tap(number, row, column);
                if (value != tap(number, row_taps_ - 1 - row, column)) return false;
                if (value != tap(number, row, column_taps_ - 1 - column)) return false;
            }
        return true;
    }

    const Connections &connections_;
    long row_taps_, column_taps_;
    std::vector<float> values_;
    std::vector<bool> used_;  // rows that are not zero
};

// For each kernel the first of its family with the same values: inputs that share one are added up first.
std::vector<int> first_equals(const Connections &connections) {
    const long *taps = connections.taps;
    const long floats = taps[0] * taps[1] * taps[2] * taps[3];
    std::vector<int> first(connections.count);
    for (long number = 0; number < connections.count; ++number) {
        long candidate = number / connections.family * connections.family;
        while (std::memcmp(connections.kernels + candidate * floats, connections.kernels + number * floats,
                           floats * sizeof(float)) != 0)
            ++candidate;
        first[number] = static_cast<int>(candidate);
    }
    return first;
}

// One output channel of one item of the batch.
class Vote {
  public:
    Vote(const Tensor &x, const Planes &planes, const Layout &layout, const long *taps, const Matrices &matrices,
         Rows rows, const Kernels &kernels, int threads)
        : x_(x), planes_(planes), layout_(layout), taps_(taps), matrices_(matrices), rows_(rows), kernels_(kernels),
          threads_(threads), margin_(Layout::round_up(layout.reach)),
          sum_pitch_(margin_ + layout.length + kLengthStep) {
        const long floats = matrices.columns * sum_pitch_ + margin_ + layout.length + kLengthStep;
        for (int thread = 0; thread < threads; ++thread) {
            scratch_.emplace_back(floats);
            std::memset(scratch_.back().data(), 0, floats * sizeof(float));
        }
        lines_.resize(threads);
    }

    // Where several inputs share a kernel, `together` has room for one channel for each group.
    void run(const std::vector<Group> &groups, Planes *together, float bias, float *result) {
        std::vector<const Planes *> sources;
        std::vector<long> channels;
        for (std::size_t number = 0; number < groups.size(); ++number) {
            const bool alone = groups[number].inputs.size() == 1;
            sources.push_back(alone ? &planes_ : together);
            channels.push_back(alone ? groups[number].inputs[0] : static_cast<long>(number));
            if (!alone)
                add_up(planes_, groups[number].inputs, together->channel(static_cast<long>(number)), kernels_, threads_);
        }
        for (Lines &lines : lines_) lines.reserve(groups.size() * matrices_.rows, taps_[1] * taps_[3]);
        parallel(rows_.count * x_.size[2], threads_, [&](long number, int thread) {
            const long first = rows_.first + number / x_.size[2], third = number % x_.size[2];
            sum_planes(groups, sources, channels, first, third, thread);
            shift_and_add(bias, thread);
            write(result, first, third, thread);
        });
    }

  private:
    struct Lines {
        std::vector<const float *> rows, first, second, shifted;
        // Tasks must not throw: all memory is had before they begin.
        void reserve(std::size_t terms, std::size_t shifts) {
            rows.reserve(terms), first.reserve(terms), second.reserve(terms), shifted.reserve(shifts);
        }
    };

    void sum_planes(const std::vector<Group> &groups, const std::vector<const Planes *> &sources,
                    const std::vector<long> &channels, long first, long third, int thread) {
        Lines &lines = lines_[thread];
        lines.rows.clear(), lines.first.clear(), lines.second.clear();
        const long last_row = taps_[0] * taps_[2] - 1;
        for (std::size_t group = 0; group < groups.size(); ++group)
            for (long row = 0; row < matrices_.rows; ++row) {
                if (!matrices_.is_used(groups[group].kernel, row)) continue;
                const float *plane = around(*sources[group], channels[group], first, third, row);
                const float *mirror = matrices_.halved && row != last_row - row
                                          ? around(*sources[group], channels[group], first, third, last_row - row)
                                          : nullptr;
                if (!plane) std::swap(plane, mirror);
                if (!plane) continue;
                lines.rows.push_back(matrices_.row(groups[group].kernel, row));
                lines.first.push_back(plane);
                lines.second.push_back(mirror);
            }
        const long terms = static_cast<long>(lines.rows.size());
        long start = 0;
        do {
            kernels_.weighted_sum({lines.rows.data() + start, lines.first.data() + start, lines.second.data() + start,
                                   std::min(kMaxTerms, terms - start), matrices_.columns, layout_.length,
                                   scratch_[thread].data() + margin_, sum_pitch_, start > 0});
            start += kMaxTerms;
        } while (start < terms);
    }

    const float *around(const Planes &planes, long channel, long first, long third, long row) const {
        return planes.at(channel, first + row / taps_[2] - taps_[0] / 2, third + row % taps_[2] - taps_[2] / 2);
    }

    void shift_and_add(float bias, int thread) {
        std::vector<const float *> &shifted = lines_[thread].shifted;
        shifted.clear();
        const long taps = taps_[1] * taps_[3];
        for (long tap = 0; tap < taps; ++tap) {
            const long place = matrices_.place_of_column[matrices_.halved ? std::min(tap, taps - 1 - tap) : tap];
            if (place < 0) continue;
            shifted.push_back(scratch_[thread].data() + margin_ + place * sum_pitch_ +
                              layout_.shift(tap / taps_[3] - taps_[1] / 2, tap % taps_[3] - taps_[3] / 2));
        }
        kernels_.shifted_sum({shifted.data(), static_cast<long>(shifted.size()), layout_.length, bias, result_plane(thread)});
    }

    void write(float *result, long first, long third, int thread) const {
        for (long row = 0; row < layout_.rows; ++row)
            copy_row(result + (((first - rows_.first) * layout_.rows + row) * x_.size[2] + third) * layout_.columns,
                     result_plane(thread) + row * layout_.row_pitch, layout_.columns);
    }

    float *result_plane(int thread) const {
        return scratch_[thread].data() + margin_ + matrices_.columns * sum_pitch_;
    }

    const Tensor &x_;
    const Planes &planes_;
    const Layout &layout_;
    const long *taps_;
    const Matrices &matrices_;
    const Rows rows_;
    const Kernels &kernels_;
    const int threads_;
    const long margin_, sum_pitch_;
    std::vector<Buffer> scratch_;  // of each thread: sums for each column with zeros around, and the result's plane
    std::vector<Lines> lines_;
};

long largest_sum(const std::vector<std::vector<Group>> &groups) {
    std::size_t largest = 0;
    for (const auto &of_output : groups)
        for (std::size_t number = 0; number < of_output.size(); ++number)
            if (of_output[number].inputs.size() > 1) largest = std::max(largest, number + 1);
    return static_cast<long>(largest);
}

}  // namespace

std::vector<const Kernels *> supported_kernels() {
    std::vector<const Kernels *> supported;
#ifdef CHMNET_X86
    if (__builtin_cpu_supports("avx512f")) supported.push_back(&avx512_kernels);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) supported.push_back(&avx2_kernels);
#endif
#ifdef CHMNET_WIDE
    supported.push_back(&wide_kernels);
#endif
    supported.push_back(&plain_kernels);
    return supported;
}

const Kernels *find_kernels(const std::string &name) {
    for (const Kernels *kernels : supported_kernels())
        if (name == kernels->name) return kernels;
    return nullptr;
}

void convolve(const Tensor &x, const Connections &connections, const float *bias, float *result, Rows rows,
              const Kernels &kernels, int threads) {
    if (x.batch == 0) return;
    const Layout layout(x.size, connections.taps);
    const Matrices matrices(connections);
    const std::vector<int> first_equal = first_equals(connections);
    std::vector<std::vector<Group>> groups;
    for (long output = 0; output < connections.outputs; ++output)
        groups.push_back(groups_of(output, connections, first_equal.data()));
    Tensor sums = x;
    sums.channels = largest_sum(groups);
    std::unique_ptr<Planes> together(sums.channels ? new Planes(sums, layout) : nullptr);
    Planes planes(x, layout);
    Vote vote(x, planes, layout, connections.taps, matrices, rows, kernels, threads);
    const long floats = rows.count * x.size[1] * x.size[2] * x.size[3];
    for (long item = 0; item < x.batch; ++item) {
        planes.fill(x, item, threads);
        for (long output = 0; output < connections.outputs; ++output)
            vote.run(groups[output], together.get(), bias ? bias[output] : 0.0f,
                     result + (item * connections.outputs + output) * floats);
    }
}

}  // namespace chmnet
