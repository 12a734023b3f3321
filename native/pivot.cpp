// Center-pivot kernels, whose planes are those of the target, (d3, d4): a result's plane is the weighted sum of the
// planes around it, unshifted, and of its own plane, shifted. Both are one sum with as many terms as there are taps.
//
// A thread walks along d1 with as many padded rows of planes as the kernel reaches: each number of the input is copied
// once, and read from nearby memory. Rows and planes outside are zeros, so that no sum has to leave out a term.
#include <algorithm>
#include <cstring>

#include "convolve.h"
#include "parallel.h"
#include "planes.h"

namespace chmnet {
namespace {

constexpr long kTogether = 8;  // planes of the result

class PivotVote {
  public:
    PivotVote(const Tensor &x, const Pivot &pivot, float bias, Rows rows, const Kernels &kernels, int threads)
        : x_(x), taps_(pivot.taps), bias_(bias), rows_(rows), kernels_(kernels),
          layout_(Sizes{x.size[0], x.size[2], x.size[1], x.size[3]}.each,
                  Sizes{taps_[0], taps_[2], taps_[1], taps_[3]}.each),
          row_pitch_((x.size[1] + taps_[1] - 1) * layout_.pitch), margin_(Layout::round_up(layout_.reach)),
          votes_(2 * margin_ + taps_[0] * row_pitch_ + kLengthStep) {
        weights_.assign(pivot.source, pivot.source + taps_[0] * taps_[1]);
        weights_.insert(weights_.end(), pivot.target, pivot.target + taps_[2] * taps_[3]);
        for (int thread = 0; thread < threads; ++thread) {
            scratch_.emplace_back(votes_ + kTogether * layout_.pitch);
            std::memset(scratch_.back().data(), 0, votes_ * sizeof(float));
            terms_.emplace_back(weights_.size());
        }
    }

    // Rows of the result from `first` to before `last`; both count from the first that is wanted.
    void run(long item, long first, long last, float *result, int thread) {
        const long reach = taps_[0] / 2;
        for (long row = rows_.first + first - reach; row < rows_.first + last + reach; ++row) {
            fill(item, row, thread);
            const long done = row - reach - rows_.first;
            if (done >= first)
                for (long second = 0; second < x_.size[1]; second += kTogether)
                    sum(done, second, std::min(kTogether, x_.size[1] - second), result, thread);
        }
    }

  private:
    struct Sizes {
        long each[4];
    };

    // Planes of a row along d1, zeros before and behind them; at most k1 / 2 rows outside.
    float *padded_row(long row, int thread) const {
        return scratch_[thread].data() + margin_ + (row + taps_[0]) % taps_[0] * row_pitch_;
    }

    void fill(long item, long row, int thread) {
        float *to = padded_row(row, thread) + taps_[1] / 2 * layout_.pitch;
        const float *from = x_.data + item * x_.stride[0] + row * x_.stride[2];
        if (row < 0 || row >= x_.size[0])
            std::memset(to, 0, x_.size[1] * layout_.pitch * sizeof(float));
        else
            for (long second = 0; second < x_.size[1]; ++second)
                fill_plane(layout_, from + second * x_.stride[3], x_.stride[4], x_.stride[5],
                           to + second * layout_.pitch);
    }

    void sum(long row, long second, long count, float *result, int thread) {
        const float **term = terms_[thread].data();
        for (long tap = 0; tap < taps_[0]; ++tap) {
            const float *planes = padded_row(rows_.first + row + tap - taps_[0] / 2, thread) + second * layout_.pitch;
            for (long other = 0; other < taps_[1]; ++other) *term++ = planes + other * layout_.pitch;
        }
        const float *own = padded_row(rows_.first + row, thread) + (second + taps_[1] / 2) * layout_.pitch;
        for (long tap = 0; tap < taps_[2]; ++tap)
            for (long other = 0; other < taps_[3]; ++other)
                *term++ = own + layout_.shift(tap - taps_[2] / 2, other - taps_[3] / 2);
        float *const votes = scratch_[thread].data() + votes_;
        kernels_.sliding_sum({terms_[thread].data(), weights_.data(), static_cast<long>(weights_.size()), count,
                              layout_.pitch, layout_.length, bias_, votes});
        result += (row * x_.size[1] + second) * layout_.rows * layout_.columns;
        for (long plane = 0; plane < count; ++plane)
            for (long third = 0; third < layout_.rows; ++third, result += layout_.columns)
                copy_row(result, votes + plane * layout_.pitch + third * layout_.row_pitch, layout_.columns);
    }

    const Tensor &x_;
    const long *taps_;
    const float bias_;
    const Rows rows_;
    const Kernels &kernels_;
    const Layout layout_;
    const long row_pitch_, margin_;
    const long votes_;  // where they begin in a thread's scratch memory, behind the padded rows
    std::vector<float> weights_;
    std::vector<Buffer> scratch_;
    std::vector<std::vector<const float *>> terms_;
};

}  // namespace

void convolve_pivot(const Tensor &x, const Pivot &pivot, float bias, float *result, Rows rows, const Kernels &kernels,
                    int threads) {
    PivotVote vote(x, pivot, bias, rows, kernels, threads);
    const long bands = std::min<long>(rows.count, threads), floats = rows.count * x.size[1] * x.size[2] * x.size[3];
    parallel(x.batch * bands, threads, [&](long number, int thread) {
        const long item = number / bands, band = number % bands;
        vote.run(item, band * rows.count / bands, (band + 1) * rows.count / bands, result + item * floats, thread);
    });
}

}  // namespace chmnet
