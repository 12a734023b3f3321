// Tensors cut into planes that the inner loops can run over from end to end.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "convolve.h"
#include "parallel.h"

namespace chmnet {

// Floats on a cache line's border, not initialised.
class Buffer {
  public:
    explicit Buffer(long floats) {
        const std::size_t bytes = (static_cast<std::size_t>(floats) * sizeof(float) + 127) / 64 * 64;
        data_.reset(static_cast<float *>(std::aligned_alloc(64, bytes)));
        if (!data_) throw std::bad_alloc();
    }
    float *data() const { return data_.get(); }

  private:
    struct Free {
        void operator()(float *data) const { std::free(data); }
    };
    std::unique_ptr<float, Free> data_;
};

// A row of a plane: too short for the library's function to be worth its call.
inline void copy_row(float *to, const float *from, long count) {
    constexpr long kStep = 8;
    if (count < kStep) {
        for (long i = 0; i < count; ++i) to[i] = from[i];
        return;
    }
    for (long i = 0; i + kStep <= count; i += kStep) std::memcpy(to + i, from + i, kStep * sizeof(float));
    std::memcpy(to + count - kStep, from + count - kStep, kStep * sizeof(float));
}

// How a plane (d2, d4) at one (d1, d3) lies in memory: its rows one after the other, each followed by as many zeros as
// the kernel reaches sideways, so that a shift of the plane is a shift of its address. Between planes there are
// zeros enough for a shift up or down.
struct Layout {
    long rows, columns;  // d2, d4
    long row_pitch;
    long reach;   // largest shift in floats
    long length;  // floats to run over
    long pitch;   // from plane to plane

    Layout(const long size[4], const long taps[4]) : rows(size[1]), columns(size[3]) {
        row_pitch = columns + taps[3] / 2;
        reach = (taps[1] / 2) * row_pitch + taps[3] / 2;
        length = round_up(rows * row_pitch);
        pitch = round_up(rows * row_pitch + reach);
    }
    long shift(long row, long column) const { return row * row_pitch + column; }
    static long round_up(long floats) { return (floats + kLengthStep - 1) / kLengthStep * kLengthStep; }
};

inline void fill_plane(const Layout &layout, const float *from, long row_stride, long column_stride, float *to) {
    const long gap = layout.row_pitch - layout.columns;
    float *const end = to + layout.pitch;
    for (long row = 0; row < layout.rows; ++row, from += row_stride) {
        if (column_stride == 1)
            copy_row(to, from, layout.columns);
        else
            for (long column = 0; column < layout.columns; ++column) to[column] = from[column * column_stride];
        to += layout.columns;
        for (long column = 0; column < gap; ++column) *to++ = 0.0f;
    }
    std::memset(to, 0, (end - to) * sizeof(float));
}

// All planes of all channels of one item of a batch: [channels, d1, d3, pitch].
class Planes {
  public:
    Planes(const Tensor &x, const Layout &layout)
        : outer_(x.size[0]), inner_(x.size[2]), count_(x.channels * outer_ * inner_), layout_(layout),
          buffer_(Layout::round_up(layout.reach) + count_ * layout.pitch + kLengthStep) {
        // Shifted planes read a little before the first and behind the last.
        std::memset(buffer_.data(), 0, Layout::round_up(layout.reach) * sizeof(float));
        std::memset(channel(x.channels), 0, kLengthStep * sizeof(float));
    }

    void fill(const Tensor &x, long item, int threads) {
        const float *start = x.data + item * x.stride[0];
        parallel(x.channels * outer_, threads, [&](long number, int) {
            const long channel = number / outer_, first = number % outer_;
            for (long third = 0; third < inner_; ++third)
                fill_plane(layout_, start + channel * x.stride[1] + first * x.stride[2] + third * x.stride[4],
                           x.stride[3], x.stride[5], plane(channel, first, third));
        });
    }

    // Null outside.
    const float *at(long channel, long first, long third) const {
        if (first < 0 || first >= outer_ || third < 0 || third >= inner_) return nullptr;
        return plane(channel, first, third);
    }

    float *plane(long channel, long first, long third) const {
        return buffer_.data() + Layout::round_up(layout_.reach) +
               ((channel * outer_ + first) * inner_ + third) * layout_.pitch;
    }
    float *channel(long number) const { return plane(number, 0, 0); }
    long channel_floats() const { return outer_ * inner_ * layout_.pitch; }

  private:
    long outer_, inner_, count_;
    Layout layout_;
    Buffer buffer_;
};

}  // namespace chmnet
