// Llama2cModel: llama2.c's own computation, in double precision, straight from the bytes of a .bin:
// a second opinion on files of that format, which knows nothing of the workbook's model.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace lab {

class Llama2cModel {
 public:
  /// Takes a file of version 0, without any check.
  explicit Llama2cModel(const std::string& bytes) {
    std::memcpy(sizes_, bytes.data(), sizeof sizes_);
    std::vector<float> floats((bytes.size() - sizeof sizes_) / sizeof(float));
    std::memcpy(floats.data(), bytes.data() + sizeof sizes_, floats.size() * sizeof(float));
    numbers_.assign(floats.begin(), floats.end());
    const size_t kv_dim = dim() / heads() * kv_heads();
    size_t next = 0;
    const auto take = [&](size_t count) {
      const size_t first = next;
      next += count;
      return numbers_.data() + first;
    };
    embedding_ = take(vocabulary() * dim());
    first_norm_ = take(layers() * dim());
    wq_ = take(layers() * dim() * dim());
    wk_ = take(layers() * kv_dim * dim());
    wv_ = take(layers() * kv_dim * dim());
    wo_ = take(layers() * dim() * dim());
    second_norm_ = take(layers() * dim());
    w1_ = take(layers() * hidden() * dim());
    w2_ = take(layers() * hidden() * dim());
    w3_ = take(layers() * hidden() * dim());
    last_norm_ = take(dim());
    cosines_ = take(context() * dim() / heads() / 2);
    sines_ = take(context() * dim() / heads() / 2);
    head_ = sizes_[5] > 0 ? embedding_ : take(vocabulary() * dim());
    used_all_ = next == numbers_.size();
  }

  bool used_all() const { return used_all_; }
  size_t vocabulary() const { return static_cast<size_t>(std::abs(sizes_[5])); }

  /// Logits of the token that follows each position, row by row.
  std::vector<double> logits(const std::vector<int32_t>& tokens, double epsilon) const {
    const size_t width = dim() / heads();
    const size_t kv_dim = width * kv_heads();
    std::vector<std::vector<double>> keys(layers());
    std::vector<std::vector<double>> values(layers());
    std::vector<double> result;
    for (size_t t = 0; t < tokens.size(); ++t) {
      const double* row = embedding_ + static_cast<size_t>(tokens[t]) * dim();
      std::vector<double> x(row, row + dim());
      for (size_t l = 0; l < layers(); ++l) {
        const auto normed = norm(x, first_norm_ + l * dim(), epsilon);
        auto q = product(wq_ + l * dim() * dim(), normed, dim());
        auto k = product(wk_ + l * kv_dim * dim(), normed, kv_dim);
        const auto v = product(wv_ + l * kv_dim * dim(), normed, kv_dim);
        turn(q, t, width);
        turn(k, t, width);
        keys[l].insert(keys[l].end(), k.begin(), k.end());
        values[l].insert(values[l].end(), v.begin(), v.end());
        std::vector<double> mixed(dim(), 0.0);
        for (size_t h = 0; h < heads(); ++h) {
          const size_t shared = h / (heads() / kv_heads()) * width;
          std::vector<double> weight;
          double total = 0.0;
          for (size_t s = 0; s <= t; ++s) {
            double score = 0.0;
            for (size_t i = 0; i < width; ++i)
              score += q[h * width + i] * keys[l][s * kv_dim + shared + i];
            weight.push_back(std::exp(score / std::sqrt(static_cast<double>(width))));
            total += weight.back();
          }
          for (size_t s = 0; s <= t; ++s)
            for (size_t i = 0; i < width; ++i)
              mixed[h * width + i] += weight[s] / total * values[l][s * kv_dim + shared + i];
        }
        add(x, product(wo_ + l * dim() * dim(), mixed, dim()));
        const auto again = norm(x, second_norm_ + l * dim(), epsilon);
        auto gate = product(w1_ + l * hidden() * dim(), again, hidden());
        const auto up = product(w3_ + l * hidden() * dim(), again, hidden());
        for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1.0 + std::exp(-gate[i]));
        add(x, product(w2_ + l * hidden() * dim(), gate, dim()));
      }
      const auto last = product(head_, norm(x, last_norm_, epsilon), vocabulary());
      result.insert(result.end(), last.begin(), last.end());
    }
    return result;
  }

 private:
  using Vector = std::vector<double>;
  size_t size(int i) const { return static_cast<size_t>(sizes_[i]); }
  size_t dim() const { return size(0); }
  size_t hidden() const { return size(1); }
  size_t layers() const { return size(2); }
  size_t heads() const { return size(3); }
  size_t kv_heads() const { return size(4); }
  size_t context() const { return size(6); }

  static Vector norm(const Vector& x, const double* weight, double epsilon) {
    double squares = 0.0;
    for (const double value : x) squares += value * value;
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + epsilon);
    Vector result(x.size());
    for (size_t i = 0; i < x.size(); ++i) result[i] = weight[i] * scale * x[i];
    return result;
  }

  static Vector product(const double* matrix, const Vector& x, size_t rows) {
    Vector result(rows, 0.0);
    for (size_t r = 0; r < rows; ++r)
      for (size_t c = 0; c < x.size(); ++c) result[r] += matrix[r * x.size() + c] * x[c];
    return result;
  }

  static void add(Vector& x, const Vector& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  // Neighbours are the two parts of a complex number, with the angles that the file holds.
  void turn(Vector& x, size_t position, size_t width) const {
    for (size_t i = 0; i < x.size(); i += 2) {
      const size_t angle = position * width / 2 + i % width / 2;
      const double real = x[i] * cosines_[angle] - x[i + 1] * sines_[angle];
      x[i + 1] = x[i] * sines_[angle] + x[i + 1] * cosines_[angle];
      x[i] = real;
    }
  }

  int32_t sizes_[7] = {};
  std::vector<double> numbers_;
  const double *embedding_, *first_norm_, *wq_, *wk_, *wv_, *wo_, *second_norm_, *w1_, *w2_, *w3_,
      *last_norm_, *cosines_, *sines_, *head_;
  bool used_all_ = false;
};

}  // namespace lab
