#include "kernels/attention.h"

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

/// What limits the keys that the queries of the head `index` see.
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

// Returns the number of parts that each head's queries are divided into: more than one if there are
// fewer heads than threads.
int64_t parts_per_head(const AttentionDims& d, const Team& team) {
  const int64_t heads = d.N * d.H;
  return std::min(query_tiles(d), (team.size() + heads - 1) / heads);
}

// Returns the minimum number of heads per thread, from a head's multiply-adds and the time to wake
// a thread.
int64_t grain(const AttentionDims& d) { return grain_of(d.Tq * d.Tk * 4); }

int64_t group_grain(const AttentionDims& d) { return grain_of(d.Tq * d.Tk * 4 * d.group()); }

// Returns the number of threads that share `items`; each has its own scratch memory.
int64_t team_parts(int64_t items, int64_t grain, const Team& team) {
  return std::clamp<int64_t>(items / grain, 1, static_cast<int64_t>(team.size()));
}

template <typename F>
void for_items(int64_t items, int64_t grain, int64_t scratch, void* workspace, Team& team,
               const F& f) {
  const int64_t parts = team_parts(items, grain, team);
  team.run(static_cast<int>(parts), [&](int index) {
    float* own = static_cast<float*>(workspace) + index * scratch;
    const Range range = part_of(items, index, parts);
    for (int64_t i = range.begin; i < range.end; ++i) f(i, own);
  });
}

float* at(float* base, int64_t offset) { return base == nullptr ? nullptr : base + offset; }

}  // namespace

int64_t attention_forward_workspace_bytes(const AttentionDims& d, const Team& team) {
  return team_parts(d.N * d.H * parts_per_head(d, team), grain(d), team) *
         attention_loops().forward_scratch(head_dims(d)) * static_cast<int64_t>(sizeof(float));
}

void attention_forward(const AttentionDims& d, const AttentionOperands<float>& o, Run run) {
  check(d, o);
  Contract("attention_forward").workspace(run);
  const HeadDims head = head_dims(d);
  const AttentionLoops& loops = attention_loops();
  const int64_t parts = parts_per_head(d, run.team), tiles = query_tiles(d);
  for_items(d.N * d.H * parts, grain(d), loops.forward_scratch(head), run.workspace, run.team,
            [&](int64_t i, float* scratch) {
              const HeadOffsets from(d, i / parts);
              const Range range = part_of(tiles, i % parts, parts);
              loops.forward(head, head_dropout(d, o.step, i / parts), range.begin, range.end,
                            {.q = o.q + from.q,
                             .k = o.k + from.kv,
                             .v = o.v + from.kv,
                             .y = o.y + from.y,
                             .lse = at(o.lse, from.lse),
                             .seen = head_seen(d, o.seen, i / parts)},
                            scratch);
            });
}

int64_t attention_backward_workspace_bytes(const AttentionDims& d, const Team& team) {
  return team_parts(d.N * d.key_heads(), group_grain(d), team) *
         attention_loops().backward_scratch(head_dims(d)) * static_cast<int64_t>(sizeof(float));
}

void attention_backward(const AttentionDims& d, const AttentionGradOperands<float>& o, Run run) {
  check(d, o);
  Contract("attention_backward").workspace(run);
  const HeadDims head = head_dims(d);
  const AttentionLoops& loops = attention_loops();
  for_items(d.N * d.key_heads(), group_grain(d), loops.backward_scratch(head), run.workspace,
            run.team, [&](int64_t group, float* scratch) {
              const int64_t i = group * d.group();  // the group's first head of queries
              const HeadOffsets from(d, i);
              loops.backward(head, head_dropout(d, o.step, i),
                             {.q = o.q + from.q,
                              .k = o.k + from.kv,
                              .v = o.v + from.kv,
                              .y = o.y + from.y,
                              .lse = o.lse + from.lse,
                              .dy = o.dy + from.y,
                              .dq = at(o.dq, from.q),
                              .dk = at(o.dk, from.kv),
                              .dv = at(o.dv, from.kv),
                              .seen = head_seen(d, o.seen, i)},
                             scratch);
            });
}

}  // namespace trainyard::kernels::cpu
