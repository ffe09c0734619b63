// Case 39 a: pages of a prefix are shared where everything that their bits depend on is equal, and nowhere else.
#include "lib/session/prefix_store.h"

#include "tests/unit/session_toy.h"

namespace engine {
namespace {

// A session that publishes to the store, with the toy's packed weights.
std::unique_ptr<Session> session_with(const Toy& toy, PrefixStore* store,
                                      KvType kv = KvType::kF16) {
  Setup setup;
  setup.kv = kv;
  auto pool = make_pool(1);
  const auto plan = must_compile(toy.program, key_of(setup));
  auto packed = toy.store.prepare(toy.program, *plan, pool->get(), {}, nullptr, copy_bytes);
  SessionOptions options;
  options.prefixes = store;
  auto session = Session::create(toy.program, *packed, std::move(*pool), plan, options);
  REQUIRE(session.ok());
  return std::move(*session);
}

int64_t taken(Session& session, const std::vector<int32_t>& ids) {
  const auto n = session.take_prefix(ids);
  REQUIRE(n.ok());
  CHECK(session.position() == *n);
  return *n;
}

std::vector<float> rest_of(Session& session, const std::vector<int32_t>& ids) {
  return decode_all(session, {ids.begin() + session.position(), ids.end()});
}

bool ends_alike(const std::vector<float>& all, const std::vector<float>& end) {
  return std::memcmp(all.data() + (all.size() - end.size()), end.data(),
                     end.size() * sizeof(float)) == 0;
}

TEST_CASE("a second session takes the pages of the first, and has the bits of a fresh one") {
  ToyModel spec;
  spec.arch = "gemma3";
  spec.n_layer = 7;
  spec.window = 16;
  const auto toy = make_toy(spec);
  const auto ids = toy_ids(200);
  const auto expected = decode_all(*make_session(*toy), ids);
  PrefixStore store;
  store.set_limit(1 << 30);
  const auto a = session_with(*toy, &store);
  CHECK(taken(*a, ids) == 0);
  rest_of(*a, ids);
  const auto b = session_with(*toy, &store);
  CHECK(taken(*b, ids) == 192);
  CHECK(b->kv().page(2).data() == a->kv().page(2).data());
  CHECK(ends_alike(expected, rest_of(*b, ids)));
  // One id is always left to decode; another beginning has less in common.
  const auto c = session_with(*toy, &store);
  CHECK(taken(*c, toy_ids(192)) == 128);
  auto other = ids;
  other[70] ^= 1;
  const auto d = session_with(*toy, &store);
  CHECK(taken(*d, other) == 64);
  CHECK(ends_alike(decode_all(*make_session(*toy), other), rest_of(*d, other)));
  // Writing behind a rewind into a shared page leaves it as it is.
  REQUIRE(d->truncate(10).ok());
  decode_all(*d, toy_ids(100));
  const auto e = session_with(*toy, &store);
  CHECK(taken(*e, ids) == 192);
  CHECK(ends_alike(expected, rest_of(*e, ids)));
  CHECK(code_of(e->take_prefix(ids).status()) == Code::kState);
  CHECK(taken(*session_with(*toy, &store, KvType::kF32), ids) == 0);
}

TEST_CASE("case 39 a: clean, under a writer, clean again") {
  const auto toy = make_toy({});
  const auto ids = toy_ids(150);
  PrefixStore store;
  store.set_limit(1 << 30);
  HookSpec write;
  write.action = HookAction::kScale;
  write.site = "resid_mid";
  write.layers = {0};
  write.alpha = 1.25f;
  const auto run = [&](PrefixStore* from, const HookSpec* hook, int64_t n_expected) {
    const auto session = session_with(*toy, from);
    if (hook != nullptr) {
      REQUIRE(session->hooks().add(*hook).ok());
      replan(*toy, *session);
    }
    if (from != nullptr) CHECK(taken(*session, ids) == n_expected);
    const auto logits = rest_of(*session, ids);
    return std::vector<float>(logits.end() - 320, logits.end());
  };
  const auto clean = run(nullptr, nullptr, 0);
  const auto written = run(nullptr, &write, 0);
  CHECK(!same_bits(clean, written));
  CHECK(same_bits(run(&store, nullptr, 0), clean));
  CHECK(same_bits(run(&store, &write, 0), written));
  CHECK(same_bits(run(&store, nullptr, 128), clean));
  CHECK(same_bits(run(&store, &write, 128), written));
  HookSpec other = write;
  other.alpha = 1.26f;
  run(&store, &other, 0);
  other = write;
  other.layers = {1};
  run(&store, &other, 0);
  other = write;
  other.select = PositionSelect::kEvery;
  other.position_step = 3;
  run(&store, &other, 0);
  // Writers that cannot fire in a prompt change none of its pages.
  other = write;
  other.select = PositionSelect::kGenerated;
  CHECK(same_bits(run(&store, &other, 128), clean));
  // Callbacks may write anything: never shared, not even between themselves.
  other = HookSpec{};
  other.action = HookAction::kWrite;
  other.site = "resid_mid";
  other.callback = [](void*, const HookEvent&, float*) { return 0; };
  run(&store, &other, 0);
  run(&store, &other, 0);
  // An observer is told how much it did not see.
  other.action = HookAction::kRead;
  CHECK(same_bits(run(&store, &other, 128), clean));
}

TEST_CASE("the store keeps to its limit and lets go of leaves first") {
  const auto toy = make_toy({});
  PrefixStore store;
  const auto ids = toy_ids(260);
  {
    const auto off = session_with(*toy, &store);
    decode_all(*off, ids);
    CHECK(store.held_bytes() == 0);
  }
  const auto a = session_with(*toy, &store);
  const auto page = static_cast<uint64_t>(a->kv().layout().page_bytes);
  store.set_limit(3 * page + page / 2);
  decode_all(*a, ids);  // four full pages: the fourth does not displace the ones that it builds on
  CHECK(store.held_bytes() <= 3 * page);
  const auto b = session_with(*toy, &store);
  const int64_t n = taken(*b, ids);
  CHECK(n % 64 == 0);
  CHECK(n >= 128);
  auto other = ids;
  other[0] ^= 1;
  const auto c = session_with(*toy, &store);
  decode_all(*c, other);
  CHECK(store.held_bytes() <= 3 * page);
  store.set_limit(0);
  CHECK(store.held_bytes() == 0);
  CHECK(ends_alike(decode_all(*make_session(*toy), ids), rest_of(*b, ids)));
}

TEST_CASE(
    "generated tokens are numbered as after a whole prompt; forks and imports know what is "
    "published") {
  const auto toy = make_toy({});
  PrefixStore store;
  store.set_limit(1 << 30);
  const auto ids = toy_ids(130);
  const auto a = session_with(*toy, &store);
  decode_all(*a, ids);
  const auto b = session_with(*toy, &store);
  CHECK(taken(*b, ids) == 128);
  rest_of(*b, ids);
  CHECK(b->hooks().prompt_end() == 130);
  auto branch = a->make_fork(true);
  REQUIRE(branch.ok());
  auto longer = ids;
  for (const int32_t id : toy_ids(70)) longer.push_back(id);
  rest_of(**branch, longer);
  const auto c = session_with(*toy, &store);
  CHECK(taken(*c, longer) == 192);
  CHECK(ends_alike(decode_all(*make_session(*toy), longer), rest_of(*c, longer)));
}

}  // namespace
}  // namespace engine
