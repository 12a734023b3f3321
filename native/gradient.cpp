// The gradient of the kernels: each tap's is the sum of the products of two planes (d2, d4), one of the input, shifted
// by the tap over (d2, d4), and one of the gradient, moved by the tap over (d1, d3).
//
// Where a tap's gradient is only wanted together with those of its mirrored taps, planes are added up first, as in the
// convolution: 169 sums of products instead of 625.
#include <algorithm>
#include <cstring>

#include "convolve.h"
#include "groups.h"
#include "parallel.h"
#include "planes.h"

namespace chmnet {
namespace {

constexpr long kNearBytes = 32768;  // of planes that are used again and again
constexpr long kRun = 80;           // numbers that a lane adds up one after the other

class Products {
  public:
    Products(const Tensor &x, const Tensor &gradient, const long *taps, bool halved, const Kernels &kernels,
             int threads)
        : size_(x.size), taps_(taps), halved_(halved), kernels_(kernels), threads_(threads), layout_(x.size, taps),
          gradient_(gradient, layout_), row_taps_(taps[0] * taps[2]), column_taps_(taps[1] * taps[3]),
          rows_(halved ? (row_taps_ + 1) / 2 : row_taps_), columns_(halved ? (column_taps_ + 1) / 2 : column_taps_),
          together_(std::max(1L, std::min(kRun * kernels.lanes, kNearBytes / (taps[0] + 1) / long(sizeof(float))) /
                                     layout_.length)),
          of_first_(x.size[0] * rows_ * columns_) {
        const long sums_of_planes = halved ? (rows_ + columns_) * together_ * layout_.pitch : 0;
        for (int thread = 0; thread < threads; ++thread)
            scratch_.emplace_back(rows_ * columns_ * kMaxLanes + sums_of_planes);
        lines_.resize(threads);
        for (Lines &lines : lines_) {  // tasks must not throw: all memory is had before they begin
            lines.shifted.reserve(column_taps_);
            lines.planes.reserve(row_taps_), lines.places.reserve(row_taps_);
        }
    }

    const Layout &layout() const { return layout_; }
    long sums() const { return rows_ * columns_; }
    void fill(const Tensor &gradient, long item) { gradient_.fill(gradient, item, threads_); }

    // total: [rows, columns]. Sums of many small numbers: single precision for one d1, double beyond; always in the
    // same order, whichever thread does what.
    void add(const Planes &x, long input, long output, double *total) {
        parallel(size_[0], threads_, [&](long first, int thread) {
            float *lanes = scratch_[thread].data();
            std::memset(lanes, 0, sums() * kMaxLanes * sizeof(float));
            if (halved_)
                add_mirrored(x, input, output, first, lanes, lines_[thread]);
            else
                add_all(x, input, output, first, lanes, lines_[thread]);
            for (long place = 0; place < sums(); ++place) {
                double sum = 0.0;
                for (long lane = 0; lane < kMaxLanes; ++lane) sum += lanes[place * kMaxLanes + lane];
                of_first_[first * sums() + place] = sum;
            }
        });
        for (long first = 0; first < size_[0]; ++first)
            for (long place = 0; place < sums(); ++place) total[place] += of_first_[first * sums() + place];
    }

  private:
    struct Lines {
        std::vector<const float *> shifted, planes;
        std::vector<long> places;
    };

    const float *gradient_at(long output, long first, long third, long row) const {
        return gradient_.at(output, first - (row / taps_[2] - taps_[0] / 2), third - (row % taps_[2] - taps_[2] / 2));
    }
    long shift(long column) const {
        return layout_.shift(column / taps_[3] - taps_[1] / 2, column % taps_[3] - taps_[3] / 2);
    }

    // Taps that differ over d1 only meet the same planes of the input: several of them at a time.
    void add_all(const Planes &x, long input, long output, long first, float *lanes, Lines &lines) const {
        auto &[shifted, planes, places] = lines;
        for (long tap = 0; tap < taps_[2]; ++tap) {
            const long reach = tap - taps_[2] / 2;
            const long begin = std::max(0L, reach), end = std::min(size_[2], size_[2] + reach);
            for (long third = begin; third < end; third += together_) {
                shifted.clear(), planes.clear(), places.clear();
                for (long column = 0; column < columns_; ++column)
                    shifted.push_back(x.plane(input, first, third) + shift(column));
                for (long row = tap; row < rows_; row += taps_[2])
                    if (const float *plane = gradient_at(output, first, third, row)) {
                        planes.push_back(plane);
                        places.push_back(row);
                    }
                multiply(lines, std::min(together_, end - third), lanes);
            }
        }
    }

    void add_mirrored(const Planes &x, long input, long output, long first, float *lanes, Lines &lines) const {
        auto &[shifted, planes, places] = lines;
        for (long third = 0; third < size_[2]; third += together_) {
            shifted.clear(), planes.clear(), places.clear();
            const long repeats = std::min(together_, size_[2] - third);
            float *room = lanes + sums() * kMaxLanes;
            for (long column = 0; column < columns_; ++column, room += together_ * layout_.pitch) {
                const float *plane = x.plane(input, first, third);
                const bool middle = 2 * column + 1 == column_taps_;
                shifted.push_back(middle ? plane : room);
                for (long repeat = 0; repeat < repeats && !middle; ++repeat, plane += layout_.pitch)
                    sum(plane + shift(column), plane - shift(column), room + repeat * layout_.pitch);
            }
            for (long row = 0; row < rows_; ++row, room += together_ * layout_.pitch) {
                const long mirrored = row_taps_ - 1 - row;
                bool any = false;
                for (long repeat = 0; repeat < repeats; ++repeat) {
                    const float *here = gradient_at(output, first, third + repeat, row);
                    const float *there =
                        mirrored == row ? nullptr : gradient_at(output, first, third + repeat, mirrored);
                    any = any || here || there;
                    sum(here, there, room + repeat * layout_.pitch);
                }
                if (!any) continue;
                planes.push_back(room);
                places.push_back(row);
            }
            multiply(lines, repeats, lanes);
        }
    }

    // Of two planes, each of which may be missing.
    void sum(const float *first, const float *second, float *result) const {
        if (!first) std::swap(first, second);
        if (second)
            kernels_.add(result, first, second, layout_.length);
        else if (first)
            std::memcpy(result, first, layout_.length * sizeof(float));
        else
            std::memset(result, 0, layout_.length * sizeof(float));
    }

    void multiply(const Lines &lines, long repeats, float *lanes) const {
        kernels_.shifted_products({lines.shifted.data(), columns_, lines.planes.data(), lines.places.data(),
                                   static_cast<long>(lines.planes.size()), layout_.length, repeats, layout_.pitch,
                                   lanes});
    }

    const long *size_, *taps_;
    const bool halved_;
    const Kernels &kernels_;
    const int threads_;
    const Layout layout_;
    Planes gradient_;
    const long row_taps_, column_taps_, rows_, columns_;
    const long together_;  // planes along d3
    std::vector<double> of_first_;
    std::vector<Buffer> scratch_;  // of each thread: lanes of sums, then sums of planes
    std::vector<Lines> lines_;
};

}  // namespace

void kernel_gradient(const Tensor &x, const Tensor &gradient, const Connections &connections, bool halved,
                     float *result, const Kernels &kernels, int threads) {
    const long *taps = connections.taps;
    const long all_taps = taps[0] * taps[1] * taps[2] * taps[3];
    Products products(x, gradient, taps, halved, kernels, threads);
    std::vector<double> total(connections.count * products.sums(), 0.0);
    if (x.batch > 0) {
        std::vector<std::vector<Group>> groups;
        bool shared = false;
        for (long output = 0; output < connections.outputs; ++output) {
            groups.push_back(groups_of(output, connections, nullptr));
            for (const Group &group : groups.back()) shared = shared || group.inputs.size() > 1;
        }
        Tensor one = x;
        one.channels = shared;
        Planes planes(x, products.layout()), together(one, products.layout());
        for (long item = 0; item < x.batch; ++item) {
            planes.fill(x, item, threads);
            products.fill(gradient, item);
            for (long output = 0; output < connections.outputs; ++output)
                for (const Group &group : groups[output]) {
                    const bool alone = group.inputs.size() == 1;
                    if (!alone) add_up(planes, group.inputs, together.channel(0), kernels, threads);
                    products.add(alone ? planes : together, alone ? group.inputs[0] : 0, output,
                                 &total[group.kernel * products.sums()]);
                }
        }
    }
    const long columns = taps[1] * taps[3], kept = halved ? (columns + 1) / 2 : columns;
    for (long number = 0; number < connections.count; ++number)
        for (long tap = 0; tap < all_taps; ++tap) {
            const long first = tap / (taps[1] * taps[2] * taps[3]), second = tap / (taps[2] * taps[3]) % taps[1];
            const long third = tap / taps[3] % taps[2], last = tap % taps[3];
            const long place = (first * taps[2] + third) * kept + second * taps[3] + last;
            const bool there = second * taps[3] + last < kept && place < products.sums();
            result[number * all_taps + tap] =
                there ? static_cast<float>(total[number * products.sums() + place]) : 0.0f;
        }
}

}  // namespace chmnet
