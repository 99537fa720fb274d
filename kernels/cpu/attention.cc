#include "kernels/attention.h"

#include <algorithm>

#include "kernels/cpu/simd/attention.h"
#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {
namespace {

HeadDims head_dims(const AttentionDims& d) {
  return {d.Tq,          d.Tk,         d.D,       d.group(),
          d.q_row,       d.kv_row,     d.H * d.D, static_cast<float>(d.scale),
          d.dropout > 0, d.key_rules()};
}

/// Offsets of the head `index` among all N * H.
struct HeadOffsets {
  int64_t q, kv, y, lse;
  HeadOffsets(const AttentionDims& d, int64_t index) {
    const int64_t n = index / d.H, h = index % d.H;
    q = n * d.Tq * d.q_row + h * d.D;
    kv = n * d.Tk * d.kv_row + h / d.group() * d.D;
    y = (n * d.Tq * d.H + h) * d.D;
    lse = index * d.Tq;
  }
};

/// Returns the limits of the sequence to which the head `index` belongs.
HeadSeen head_seen(const AttentionDims& d, const SeenKeys& seen, int64_t index) {
  const int64_t n = index / d.H;
  return {seen.positions == nullptr ? nullptr : seen.positions + n * d.Tq,
          seen.key_counts == nullptr ? nullptr : seen.key_counts + n};
}

HeadDropout head_dropout(const AttentionDims& d, const int64_t* step, int64_t index) {
  return {d.dropout,
          d.seed,
          step == nullptr ? 0 : static_cast<uint64_t>(*step),
          d.stream,
          (d.first_head + index) * d.Tq * d.dropout_row(),
          d.dropout_row()};
}

int64_t query_tiles(const AttentionDims& d) { return (d.Tq + kAttentionTile - 1) / kAttentionTile; }

// Returns the number of threads that share `items`; each has its own scratch memory. A thread gets
// at least so many that their multiply-adds, `cost` for each, are worth waking it.
int64_t team_parts(int64_t items, int64_t cost, const Team& team) {
  return std::clamp<int64_t>(items / grain_of(cost), 1, static_cast<int64_t>(team.size()));
}

// Calls f(item, thread, scratch). Each thread takes every `parts`-th item, since items next to each
// other are of the same row, and rows differ in the lengths of their documents.
template <typename F>
void for_items(int64_t items, int64_t cost, int64_t scratch, void* workspace, Team& team,
               const F& f) {
  const int64_t parts = team_parts(items, cost, team);
  team.run(static_cast<int>(parts), [&](int index) {
    float* own = static_cast<float*>(workspace) + index * scratch;
    for (int64_t i = index; i < items; i += parts) f(i, index, own);
  });
}

// How the forward pass is divided: into groups if their queries are few, else into heads, and if
// there are fewer of these than threads, into parts of each head's queries.
struct ForwardItems {
  bool few;
  int64_t parts, count, cost, scratch;
  ForwardItems(const AttentionDims& d, const Team& team) : few(d.Tq <= kFewQueries), parts(1) {
    const int64_t heads = d.N * d.H;
    if (!few) parts = std::min(query_tiles(d), (team.size() + heads - 1) / heads);
    count = few ? d.N * d.key_heads() : heads * parts;
    cost = d.Tq * d.Tk * 4 * (few ? d.group() : 1);
    const AttentionLoops& loops = attention_loops();
    scratch = few ? loops.few_scratch(head_dims(d)) : loops.forward_scratch(head_dims(d));
  }
};

// How the backward pass is divided: into groups, or into heads if the groups are too few to keep
// the team busy. In both cases a head's dk and dv are computed by themselves and then added to
// those of the heads before it, so that the sums have the same bits. `part` is the number of floats
// of dk, and of dv, of one head; with several heads in a group it is computed outside of dk.
struct BackwardItems {
  bool by_head;
  int64_t count, cost, scratch, part, kept_parts;
  BackwardItems(const AttentionDims& d, const Team& team) {
    const int64_t groups = d.N * d.key_heads();
    by_head = d.group() == 1 || groups < 4 * team.size();
    count = by_head ? d.N * d.H : groups;
    cost = d.Tq * d.Tk * 4 * (by_head ? 1 : d.group());
    scratch = attention_loops().backward_scratch(head_dims(d));
    part = d.group() == 1 ? 0 : (d.Tk * d.D + 15) / 16 * 16;
    kept_parts = by_head ? count : team_parts(count, cost, team);
  }
};

float* at(float* base, int64_t offset) { return base == nullptr ? nullptr : base + offset; }

/// The operands of the backward pass of head `index` of all N * H. dk and dv are its parts if it
/// shares its keys.
HeadBackward head_backward(const AttentionDims& d, const AttentionGradOperands<float>& o,
                           int64_t index, float* dk_part, float* dv_part) {
  const HeadOffsets from(d, index);
  const bool shares = d.group() > 1;
  return {.q = o.q + from.q,
          .k = o.k + from.kv,
          .v = o.v + from.kv,
          .y = o.y + from.y,
          .lse = o.lse + from.lse,
          .dy = o.dy + from.y,
          .dq = at(o.dq, from.q),
          .dk = o.dk != nullptr && shares ? dk_part : at(o.dk, from.kv),
          .dv = o.dv != nullptr && shares ? dv_part : at(o.dv, from.kv),
          .dkv_row = shares ? d.D : d.kv_row,
          .seen = head_seen(d, o.seen, index)};
}

/// Adds the part of head `index` to dk or dv, or assigns it if the head is its group's first.
void add_part(const AttentionDims& d, int64_t index, const float* part, float* gradient) {
  if (gradient == nullptr) return;
  float* sum = gradient + HeadOffsets(d, index).kv;
  if (index % d.group() == 0) {
    for (int64_t j = 0; j < d.Tk; ++j) std::copy_n(part + j * d.D, d.D, sum + j * d.kv_row);
  } else {
    attention_loops().add_part(head_dims(d), part, sum);
  }
}

}  // namespace

int64_t attention_forward_workspace_bytes(const AttentionDims& d, const Team& team) {
  const ForwardItems items(d, team);
  return team_parts(items.count, items.cost, team) * items.scratch *
         static_cast<int64_t>(sizeof(float));
}

void attention_forward(const AttentionDims& d, const AttentionOperands<float>& o, Run run) {
  check(d, o);
  Contract("attention_forward").workspace(run);
  const HeadDims head = head_dims(d);
  const AttentionLoops& loops = attention_loops();
  const ForwardItems items(d, run.team);
  const int64_t tiles = query_tiles(d);
  for_items(items.count, items.cost, items.scratch, run.workspace, run.team,
            [&](int64_t item, int64_t, float* scratch) {
              const int64_t i = items.few ? item * d.group() : item / items.parts;
              const HeadOffsets from(d, i);
              const HeadForward operands{.q = o.q + from.q,
                                         .k = o.k + from.kv,
                                         .v = o.v + from.kv,
                                         .y = o.y + from.y,
                                         .lse = at(o.lse, from.lse),
                                         .seen = head_seen(d, o.seen, i)};
              const HeadDropout dropout = head_dropout(d, o.step, i);
              if (items.few) return loops.forward_few(head, dropout, operands, scratch);
              const Range range = part_of(tiles, item % items.parts, items.parts);
              loops.forward(head, dropout, range.begin, range.end, operands, scratch);
            });
}

int64_t attention_backward_workspace_bytes(const AttentionDims& d, const Team& team) {
  const BackwardItems items(d, team);
  return (team_parts(items.count, items.cost, team) * items.scratch +
          2 * items.kept_parts * items.part) *
         static_cast<int64_t>(sizeof(float));
}

void attention_backward(const AttentionDims& d, const AttentionGradOperands<float>& o, Run run) {
  check(d, o);
  Contract("attention_backward").workspace(run);
  const HeadDims head = head_dims(d);
  const AttentionLoops& loops = attention_loops();
  const BackwardItems items(d, run.team);
  const int64_t threads = team_parts(items.count, items.cost, run.team);
  float* const parts = static_cast<float*>(run.workspace) + threads * items.scratch;
  const auto compute = [&](int64_t i, float* part, float* scratch) {
    loops.backward(head, head_dropout(d, o.step, i),
                   head_backward(d, o, i, part, part + items.part), scratch);
  };
  const auto add = [&](int64_t i, const float* part) {
    add_part(d, i, part, o.dk);
    add_part(d, i, part + items.part, o.dv);
  };
  for_items(items.count, items.cost, items.scratch, run.workspace, run.team,
            [&](int64_t item, int64_t thread, float* scratch) {
              if (items.by_head) return compute(item, parts + 2 * item * items.part, scratch);
              float* const part = parts + 2 * thread * items.part;
              for (int64_t h = 0; h < d.group(); ++h) {
                compute(item * d.group() + h, part, scratch);
                add(item * d.group() + h, part);
              }
            });
  if (!items.by_head || d.group() == 1) return;
  run.team.parallel_for(d.N * d.key_heads(), grain_of(d.Tk * d.D * 2 * d.group()),
                        [&](int64_t begin, int64_t end) {
                          for (int64_t i = begin * d.group(); i < end * d.group(); ++i) {
                            add(i, parts + 2 * i * items.part);
                          }
                        });
}

}  // namespace trainyard::kernels::cpu
