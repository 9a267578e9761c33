// SmallBank on LMDB (MDB_NOSYNC) and on RocksDB's OptimisticTransactionDB (no write-ahead log), in one process:
// the mix, the sizes, the skew and the rows of `farside bench smallbank`.
//
// usage: smallbank lmdb|lmdb-writemap|rocksdb DIR ACCOUNTS THREADS SECONDS; prints transactions per second.

#include <lmdb.h>
#include <rocksdb/db.h>
#include <rocksdb/options.h>
#include <rocksdb/utilities/optimistic_transaction_db.h>
#include <rocksdb/utilities/transaction.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

static const int64_t kBeginning = 1000000;
static const uint64_t kMagic = 0x53414c4c42414e4bull;

struct Row { int64_t balance; uint64_t magic; };

static uint64_t accounts;

// A key: the table, and the account in big-endian order.
static void key(char out[9], char table, uint64_t account) {
  out[0] = table;
  for (int i = 0; i < 8; i++) out[1 + i] = static_cast<char>(account >> (56 - 8 * i));
}

[[noreturn]] static void die(const char* what, const std::string& why) {
  std::fprintf(stderr, "%s: %s\n", what, why.c_str());
  std::exit(1);
}

// What a transaction does, on any store: read some rows, write some.
struct Plan { int kind; uint64_t one, two; int64_t amount; };

struct Draw {
  std::mt19937_64 random;
  explicit Draw(uint64_t seed) : random(seed) {}
  uint64_t account() {
    uint64_t hot = std::max<uint64_t>(accounts * 4 / 100, 1);
    return random() % 100 < 90 ? random() % hot : random() % accounts;
  }
  Plan next() {
    static const int kMix[6] = {15, 15, 15, 25, 15, 15};
    int at = static_cast<int>(random() % 100), kind = 0;
    while (at >= kMix[kind]) at -= kMix[kind++];
    Plan plan{kind, account(), account(), static_cast<int64_t>(random() % 100) + 1};
    while (plan.two == plan.one) plan.two = random() % accounts;
    return plan;
  }
};

// Runs one transaction through `get` and `put`; whether it has written anything.
template <typename Get, typename Put>
static bool run(const Plan& plan, Get get, Put put) {
  auto row = [](int64_t balance) { return Row{balance, kMagic}; };
  switch (plan.kind) {
    case 0: {  // amalgamate
      Row s = get('s', plan.one), c = get('c', plan.one), d = get('c', plan.two);
      put('s', plan.one, row(0)); put('c', plan.one, row(0));
      put('c', plan.two, row(d.balance + s.balance + c.balance));
      return true;
    }
    case 1: get('s', plan.one); get('c', plan.one); return false;  // balance
    case 2: {  // deposit-checking
      Row c = get('c', plan.one); put('c', plan.one, row(c.balance + plan.amount)); return true;
    }
    case 3: {  // send-payment
      Row c = get('c', plan.one), d = get('c', plan.two);
      if (c.balance < plan.amount) return false;
      put('c', plan.one, row(c.balance - plan.amount)); put('c', plan.two, row(d.balance + plan.amount));
      return true;
    }
    case 4: {  // transact-savings
      Row s = get('s', plan.one); put('s', plan.one, row(s.balance + plan.amount)); return true;
    }
    default: {  // write-check
      Row s = get('s', plan.one), c = get('c', plan.one);
      int64_t amount = plan.amount + (s.balance + c.balance < plan.amount ? 1 : 0);
      put('c', plan.one, row(c.balance - amount)); return true;
    }
  }
}

static std::atomic<uint64_t> committed{0};
static std::atomic<bool> stop{false};

static void lmdb_thread(MDB_env* env, MDB_dbi dbi, uint64_t seed) {
  Draw draw(seed);
  uint64_t done = 0;
  MDB_txn* reader = nullptr;
  while (!stop.load(std::memory_order_relaxed)) {
    Plan plan = draw.next();
    bool reads = plan.kind == 1;
    MDB_txn* txn;
    if (reads && reader) { mdb_txn_renew(reader); txn = reader; }
    else if (int e = mdb_txn_begin(env, nullptr, reads ? MDB_RDONLY : 0, &txn)) die("lmdb begin", mdb_strerror(e));
    if (reads) reader = txn;
    auto get = [&](char table, uint64_t account) {
      char k[9]; key(k, table, account);
      MDB_val kv{9, k}, dv;
      if (int e = mdb_get(txn, dbi, &kv, &dv)) die("lmdb get", mdb_strerror(e));
      Row row; std::memcpy(&row, dv.mv_data, sizeof row); return row;
    };
    auto put = [&](char table, uint64_t account, Row row) {
      char k[9]; key(k, table, account);
      MDB_val kv{9, k}, dv{sizeof row, &row};
      if (int e = mdb_put(txn, dbi, &kv, &dv, 0)) die("lmdb put", mdb_strerror(e));
    };
    bool wrote = run(plan, get, put);
    if (reads) mdb_txn_reset(txn);
    else if (!wrote) mdb_txn_abort(txn);
    else if (int e = mdb_txn_commit(txn)) die("lmdb commit", mdb_strerror(e));
    done++;
  }
  committed += done;
}

static void rocksdb_thread(rocksdb::OptimisticTransactionDB* db, uint64_t seed) {
  Draw draw(seed);
  rocksdb::WriteOptions write; write.disableWAL = true;
  rocksdb::ReadOptions read;
  uint64_t done = 0;
  rocksdb::Transaction* txn = nullptr;
  while (!stop.load(std::memory_order_relaxed)) {
    Plan plan = draw.next();
    for (;;) {
      txn = db->BeginTransaction(write, rocksdb::OptimisticTransactionOptions(), txn);
      auto get = [&](char table, uint64_t account) {
        char k[9]; key(k, table, account);
        std::string value;
        auto status = txn->GetForUpdate(read, rocksdb::Slice(k, 9), &value);
        if (!status.ok()) die("rocksdb get", status.ToString());
        Row row; std::memcpy(&row, value.data(), sizeof row); return row;
      };
      auto put = [&](char table, uint64_t account, Row row) {
        char k[9]; key(k, table, account);
        auto status = txn->Put(rocksdb::Slice(k, 9), rocksdb::Slice(reinterpret_cast<char*>(&row), sizeof row));
        if (!status.ok()) die("rocksdb put", status.ToString());
      };
      run(plan, get, put);
      auto status = txn->Commit();
      if (status.ok()) break;
      if (!status.IsBusy() && !status.IsTryAgain()) die("rocksdb commit", status.ToString());
    }
    done++;
  }
  delete txn;
  committed += done;
}

int main(int argc, char** argv) {
  if (argc != 6) die("usage", "smallbank lmdb|lmdb-writemap|rocksdb DIR ACCOUNTS THREADS SECONDS");
  std::string store = argv[1], dir = argv[2];
  accounts = std::strtoull(argv[3], nullptr, 10);
  unsigned threads = std::atoi(argv[4]);
  double seconds = std::atof(argv[5]);
  std::vector<std::thread> running;
  auto measure = [&] {
    auto start = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    stop = true;
    for (auto& thread : running) thread.join();
    std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::printf("%.0f\n", committed / took.count());
  };
  if (store == "lmdb" || store == "lmdb-writemap") {
    MDB_env* env; MDB_dbi dbi; MDB_txn* txn;
    mdb_env_create(&env);
    mdb_env_set_mapsize(env, 4ull << 30);
    if (int e = mdb_env_open(env, dir.c_str(), MDB_NOSYNC | (store == "lmdb" ? 0 : MDB_WRITEMAP), 0600)) die("lmdb open", mdb_strerror(e));
    mdb_txn_begin(env, nullptr, 0, &txn);
    if (int e = mdb_dbi_open(txn, nullptr, 0, &dbi)) die("lmdb dbi", mdb_strerror(e));
    for (char table : {'c', 's'})
      for (uint64_t account = 0; account < accounts; account++) {
        char k[9]; key(k, table, account);
        Row row{kBeginning, kMagic};
        MDB_val kv{9, k}, dv{sizeof row, &row};
        if (int e = mdb_put(txn, dbi, &kv, &dv, MDB_APPEND)) die("lmdb load", mdb_strerror(e));
      }
    mdb_txn_commit(txn);
    for (unsigned i = 0; i < threads; i++) running.emplace_back(lmdb_thread, env, dbi, i + 1);
    measure();
    mdb_env_close(env);
  } else if (store == "rocksdb") {
    rocksdb::Options options; options.create_if_missing = true;
    options.write_buffer_size = 512 << 20;
    options.allow_concurrent_memtable_write = true;
    rocksdb::OptimisticTransactionDB* db;
    auto status = rocksdb::OptimisticTransactionDB::Open(options, dir, &db);
    if (!status.ok()) die("rocksdb open", status.ToString());
    rocksdb::WriteOptions write; write.disableWAL = true;
    for (char table : {'c', 's'})
      for (uint64_t account = 0; account < accounts; account++) {
        char k[9]; key(k, table, account);
        Row row{kBeginning, kMagic};
        db->GetBaseDB()->Put(write, rocksdb::Slice(k, 9), rocksdb::Slice(reinterpret_cast<char*>(&row), sizeof row));
      }
    for (unsigned i = 0; i < threads; i++) running.emplace_back(rocksdb_thread, db, i + 1);
    measure();
    delete db;
  } else {
    die("store", "expected lmdb, lmdb-writemap or rocksdb");
  }
}
