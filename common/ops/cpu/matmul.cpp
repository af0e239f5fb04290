// Matrix products by oneDNN.
#include <dnnl.h>

#include <algorithm>
#include <compare>
#include <dnnl.hpp>
#include <map>
#include <type_traits>

#include "common/error.h"
#include "common/ops/cpu/kernels.h"
#include "common/tensor/parallel.h"

namespace lab::cpu {
namespace {

/// How many rows of a transposed operand are read at a time. Columns are gathered across rows.
/// Where rows are a multiple of 4 KiB apart, as those of 4,096 logits are, all elements of a column
/// compete for the same few cache lines; this many rows fit.
constexpr int64_t kRowsAtATime = 128;

template <typename A>
bool rows_compete(const MatrixOf<A>& m) {
  return m.ld * static_cast<int64_t>(sizeof(A)) % 4096 == 0 && m.rows > kRowsAtATime;
}

void multiply(bool ta, bool tb, const Matrix& a, const Matrix& b, bool accumulate,
              const Matrix& c) {
  const int64_t inner = ta ? a.rows : a.columns;
  // oneDNN insists on ld >= 1 and >= columns, also for matrices of one row.
  const dnnl_status_t status =
      dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', c.rows, c.columns, inner, 1.0F, a.data, a.ld,
                 b.data, b.ld, accumulate ? 1.0F : 0.0F, c.data, c.ld);
  require(status == dnnl_success, "matrix product [{} x {}] x [{} x {}]: oneDNN returned status {}",
          c.rows, inner, inner, c.columns, static_cast<int>(status));
}

/// How oneDNN sees a matrix, or its transpose.
template <typename T>
dnnl::memory::desc description(const MatrixOf<T>& m, bool transposed) {
  using dnnl::memory;
  const auto type = std::is_same_v<T, float> ? memory::data_type::f32 : memory::data_type::bf16;
  const memory::dims strides{m.ld, 1};
  if (transposed) return {{m.columns, m.rows}, type, {strides[1], strides[0]}};
  return {{m.rows, m.columns}, type, strides};
}

/// What a product's code depends on.
struct ProductShape {
  int64_t threads, rows, inner, columns, a_ld, b_ld, c_ld;
  bool transposes_a, transposes_b, accumulates, rounds_c;
  auto operator<=>(const ProductShape&) const = default;  // NOLINT(modernize-use-nullptr)
};

struct RoundedProduct {
  dnnl::matmul primitive;
  dnnl::memory a, b, c;  // without data
};

template <typename C>
RoundedProduct make_product(const dnnl::engine& engine, const ProductShape& shape,
                            const MatrixOf<Bfloat16>& a, const MatrixOf<Bfloat16>& b,
                            const MatrixOf<C>& c) {
  dnnl::primitive_attr attributes;
  if (shape.accumulates) {
    dnnl::post_ops addition;
    addition.append_sum();
    attributes.set_post_ops(addition);
  }
  const auto of_a = description(a, shape.transposes_a);
  const auto of_b = description(b, shape.transposes_b);
  const auto of_c = description(c, false);
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::matmul::primitive_desc product(engine, of_a, of_b, of_c, attributes);
#else
  const dnnl::matmul::primitive_desc product({of_a, of_b, of_c}, attributes, engine);
#endif
  return {dnnl::matmul(product),
          {of_a, engine, nullptr},
          {of_b, engine, nullptr},
          {of_c, engine, nullptr}};
}

template <typename C>
void multiply(bool ta, bool tb, const MatrixOf<Bfloat16>& a, const MatrixOf<Bfloat16>& b,
              bool accumulate, const MatrixOf<C>& c) {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  thread_local dnnl::stream stream(engine);
  // oneDNN has a cache, too, but looking a product up there takes as long as computing a small one,
  // and the memory for its intermediate results would be allocated anew every time.
  thread_local std::map<ProductShape, RoundedProduct> products;
  constexpr size_t kMostProducts = 1000;  // a sequence that grows needs others for every token
  const ProductShape shape{thread_count(),
                           c.rows,
                           ta ? a.rows : a.columns,
                           c.columns,
                           a.ld,
                           b.ld,
                           c.ld,
                           ta,
                           tb,
                           accumulate,
                           std::is_same_v<C, Bfloat16>};
  auto known = products.find(shape);
  if (known == products.end()) {
    if (products.size() >= kMostProducts) products.clear();
    known = products.emplace(shape, make_product(engine, shape, a, b, c)).first;
  }
  RoundedProduct& product = known->second;
  product.a.set_data_handle(a.data);
  product.b.set_data_handle(b.data);
  product.c.set_data_handle(c.data);
  product.primitive.execute(
      stream,
      {{DNNL_ARG_SRC, product.a}, {DNNL_ARG_WEIGHTS, product.b}, {DNNL_ARG_DST, product.c}});
  stream.wait();
}

}  // namespace

template <typename A, typename C>
void matmul(Transpose transpose_a, Transpose transpose_b, const MatrixOf<A>& a,
            const MatrixOf<A>& b, bool accumulate, const MatrixOf<C>& c) {
  const bool ta = transpose_a == Transpose::kYes;
  const bool tb = transpose_b == Transpose::kYes;
  const int64_t inner = ta ? a.rows : a.columns;
  if (c.rows == 0 || c.columns == 0) return;
  if (inner == 0) {  // an empty sum
    if (!accumulate)
      for (int64_t r = 0; r < c.rows; ++r) std::fill_n(c.row(r), c.columns, C(0.0F));
    return;
  }
  make_threads_certain();
  // In bfloat16 oneDNN copies what it transposes to where nothing competes.
  if (!std::is_same_v<A, float> || !ta || tb || !rows_compete(a))
    return multiply(ta, tb, a, b, accumulate, c);
  for (int64_t first = 0; first < inner; first += kRowsAtATime) {
    const int64_t last = std::min(first + kRowsAtATime, inner);
    multiply(ta, tb, rows_of(a, first, last), rows_of(b, first, last), accumulate || first > 0, c);
  }
}

template void matmul(Transpose, Transpose, const Matrix&, const Matrix&, bool, const Matrix&);
template void matmul(Transpose, Transpose, const MatrixOf<Bfloat16>&, const MatrixOf<Bfloat16>&,
                     bool, const Matrix&);
template void matmul(Transpose, Transpose, const MatrixOf<Bfloat16>&, const MatrixOf<Bfloat16>&,
                     bool, const MatrixOf<Bfloat16>&);

}  // namespace lab::cpu
