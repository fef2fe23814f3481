//! The simulator of GPU schedules and their verifier: a product that is scheduled by hand is right, and errors planted in it are
//! found.

use expect_test::{Expect, expect};

use lowering::devtools::schedule_simulator::{Launch, check_schedule, reference};
use lowering::gpu::schedule::verify::verify_schedule;
use tile_ir::ir;
use tile_ir::ir::{Block, Func, FuncBuilder, Op, Shape, Storage, Type, Value};
use tile_ir::ops::schedule::{
    AfterIssue, InitVisibility, Role, SmemPlace, Stage, StagedOperand, WgmmaOperandA,
};
use tile_ir::ops::*;
use tile_ir::support::dtype::DType;

use tile_ir::testing::func;

const WARPS: u32 = 8;
const STAGES: u32 = 3;
const EXTENT: u32 = 32;
/// Bytes of an operand's tile.
const BYTES: u32 = EXTENT * EXTENT * 2;

const PRODUCT: &str = "#[fuse_kernel(num_warps = 8)]
    fn product(a: &View<bf16, 2>, b: &View<bf16, 2>, out: &mut View<f32, 2>) {
        let (row, col) = (tl::program_id(0) * 32, tl::program_id(1) * 32);
        let mut acc = tl::zeros::<f32>([32, 32]);
        for start in (0..a.shape(1)).step_by(32) {
            acc = tl::dot(a.load::<32, 32>(row, start), b.load::<32, 32>(start, col), acc);
        }
        out.store(acc, row, col);
    }";

/// Whether a dot is in flight from one iteration to the next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dots {
    Waited,
    InFlight,
}

/// Builds the product's schedule in place of its body.
struct ScheduleBuilder<'f> {
    b: FuncBuilder<'f>,
    operands: [Value; 2],
    full: Value,
    empty: Value,
    /// The extent along K.
    inner: Value,
}

fn tile(dtype: DType) -> Type {
    Type::tile(dtype, Shape::new([EXTENT, EXTENT]))
}

fn index() -> Type {
    Type::scalar(DType::I64)
}

fn pipe() -> Type {
    Type::scalar(DType::I32).stored(Storage::Pipe { stages: STAGES })
}

impl ScheduleBuilder<'_> {
    fn effect(&mut self, kind: impl Into<Kind>) {
        self.b.push(kind, vec![]);
    }

    fn int(&mut self, value: i128) -> Value {
        self.b.one(Constant { value: ConstantValue::Int(value) }, index())
    }

    /// The first row and column of the program's tile.
    fn origin(&mut self) -> [Value; 2] {
        [0, 1].map(|axis| {
            let id = self.b.one(ProgramId { axis }, Type::scalar(DType::I32));
            let id = self.b.one(Cast::new(id), index());
            let extent = self.int(EXTENT.into());
            self.b.one(Scalar::named("mul", vec![id, extent]), index())
        })
    }

    /// The constants that a loop over K begins with and steps by, and its trip count.
    fn iterations(&mut self) -> [Value; 3] {
        let (low, step) = (self.int(0), self.int(EXTENT.into()));
        let count = TripCount { low, high: self.inner, step, closed: false, runs: false };
        [low, step, self.b.one(count, index())]
    }

    fn stage(&self, buffer: Value, pipe: Value) -> Stage {
        Stage { buffer, pipe }
    }

    fn work_tiles(&mut self, role: Role, body: impl FnOnce(&mut Self, Value) -> Value) -> Block {
        self.b.begin(vec![]);
        let init = self.b.one(PipeStart { role }, pipe());
        let state = self.b.begin(vec![pipe()])[0];
        let end = body(self, state);
        let body = self.b.end(vec![end]);
        self.effect(WorkTiles {
            role,
            dynamic: false,
            inits: vec![init],
            address: 65536,
            body,
            scalars: vec![],
        });
        self.b.end(vec![])
    }

    fn loop_over_k(
        &mut self,
        inits: Vec<Value>,
        body: impl FnOnce(&mut Self, &[Value]) -> Vec<Value>,
    ) -> (Value, Vec<Value>) {
        let [low, step, count] = self.iterations();
        let types: Vec<Type> = inits.iter().map(|&init| self.b.func.ty(init).clone()).collect();
        let args = self.b.begin([vec![index()], types.clone()].concat());
        let variable = self.b.one(Induction { index: args[0], low, step }, index());
        let yields = body(self, &[&[variable], &args[..]].concat());
        let body = self.b.end(yields);
        let all = Loop { first: low, end: count, inits, body, narrow: false, overlapped: false };
        (count, self.b.push(all, types))
    }

    fn producer(&mut self) -> Block {
        self.work_tiles(Role::Producer, |own, state| {
            own.effect(Publish { scalars: vec![] });
            let [row, column] = own.origin();
            let (_, ends) = own.loop_over_k(vec![state], |own, args| {
                let &[k, _, pipe] = args else { panic!("an iteration has three arguments") };
                own.effect(MbarWait { barrier: own.stage(own.empty, pipe) });
                own.effect(ExpectTx { barrier: own.stage(own.full, pipe), bytes: 2 * BYTES });
                for (view, offsets) in [[row, k], [k, column]].into_iter().enumerate() {
                    let tile = own.view_tile(view, offsets);
                    let to = own.stage(own.operands[view], pipe);
                    own.effect(TmaLoad { tile, to, signal: own.full, map: view, shared: None });
                }
                vec![own.next(pipe)]
            });
            ends[0]
        })
    }

    fn view_tile(&self, view: usize, offsets: [Value; 2]) -> ViewTile {
        let memory = self.b.func.views[view].memory;
        ViewTile { memory, offsets: offsets.to_vec(), extents: Shape::new([EXTENT, EXTENT]) }
    }

    fn next(&mut self, pipe: Value) -> Value {
        self.b.one(PipeNext { pipe }, self::pipe())
    }

    fn wgmma(&mut self, pipe: Value, acc: Value, accumulates: Option<Value>, then: AfterIssue) -> Value {
        let [a, b] = self.operands.map(|buffer| StagedOperand {
            place: SmemPlace::Stage(self.stage(buffer, pipe)),
            transposed: false,
        });
        let dot = Wgmma {
            a: WgmmaOperandA::Smem(a),
            b,
            acc: Some(acc),
            accumulates,
            k: [0, EXTENT],
            position: vec![],
            transposed: false,
            then,
        };
        self.b.one(dot, tile(DType::F32))
    }

    fn is_positive(&mut self, value: Value) -> Value {
        let zero = self.int(0);
        self.b.one(Scalar::named("gt", vec![value, zero]), Type::scalar(DType::Bool))
    }

    /// Waits for each dot before it releases the operands.
    fn waited_loop(&mut self, acc: Value, state: Value) -> [Value; 2] {
        let (_, ends) = self.loop_over_k(vec![acc, state], |own, args| {
            let (acc, pipe) = (args[2], args[3]);
            own.effect(MbarWait { barrier: own.stage(own.full, pipe) });
            let acc = own.wgmma(pipe, acc, None, AfterIssue::Continue);
            let acc = own
                .b
                .push(DotWait { values: vec![acc], pending: 0, issued_if: None }, vec![tile(DType::F32)])[0];
            own.effect(MbarArrive { barrier: own.stage(own.empty, pipe), only_if: None });
            vec![acc, own.next(pipe)]
        });
        [ends[0], ends[1]]
    }

    /// Releases the operands of a dot when the next one was issued.
    fn in_flight_loop(&mut self, acc: Value, state: Value) -> [Value; 2] {
        // The first dot does not add to it.
        let undefined = self.b.one(Poison, tile(DType::F32));
        debug_assert_eq!(self.b.func.ty(undefined), self.b.func.ty(acc));
        let (count, ends) = self.loop_over_k(vec![undefined, state, state], |own, args| {
            let &[_, iteration, acc, before, pipe] = args else { panic!("an iteration has five arguments") };
            own.effect(MbarWait { barrier: own.stage(own.full, pipe) });
            let behind_first = own.is_positive(iteration);
            let acc = own.wgmma(pipe, acc, Some(behind_first), AfterIssue::Continue);
            let acc = own
                .b
                .push(DotWait { values: vec![acc], pending: 1, issued_if: None }, vec![tile(DType::F32)])[0];
            own.effect(MbarArrive { barrier: own.stage(own.empty, before), only_if: Some(behind_first) });
            vec![acc, pipe, own.next(pipe)]
        });
        let ran = self.is_positive(count);
        let wait = DotWait { values: vec![ends[0]], pending: 0, issued_if: Some(ran) };
        let acc = self.b.push(wait, vec![tile(DType::F32)])[0];
        self.effect(MbarArrive { barrier: self.stage(self.empty, ends[1]), only_if: Some(ran) });
        [acc, ends[2]]
    }

    fn consumer(&mut self, dots: Dots) -> Block {
        self.work_tiles(Role::Consumer, |own, state| {
            let offsets = own.origin();
            let zero = own.b.one(Constant { value: ConstantValue::Float(0.0) }, Type::scalar(DType::F32));
            let acc = own.b.one(Splat { value: zero }, tile(DType::F32));
            let [value, end] = match dots {
                Dots::Waited => own.waited_loop(acc, state),
                Dots::InFlight => own.in_flight_loop(acc, state),
            };
            let tile = own.view_tile(2, offsets);
            own.effect(StoreView { tile, value, cache: CacheHints::default() });
            end
        })
    }
}

/// The product, scheduled by hand.
fn scheduled(laid_out: &Func, dots: Dots) -> Func {
    let mut func = laid_out.clone();
    let inner = func.views[0].shape[1];
    let mut b = FuncBuilder::new(&mut func);
    let operand = tile(DType::BF16).stored(Storage::Smem { stages: STAGES });
    let operands = [0, BYTES].map(|address| b.one(SmemAlloc { address, stride: 2 * BYTES }, operand.clone()));
    let mut barrier = |address, arrivals| {
        let storage = Storage::Mbarrier { stages: STAGES, arrivals, cluster: false };
        b.one(MbarAlloc { address }, Type::scalar(DType::I64).stored(storage))
    };
    let (full, empty) = (barrier(40960, 1), barrier(40960 + 8 * STAGES, WARPS));
    let mut own = ScheduleBuilder { b, operands, full, empty, inner };
    let visible = InitVisibility::Init;
    own.effect(MbarInit { barriers: vec![full, empty], prefetched: vec![], visible });
    let (producer, consumer) = (own.producer(), own.consumer(dots));
    own.effect(WarpSpecialize { producer, consumer, warpgroups: 1, registers: Some([24, 240]) });
    own.b.finish();
    ir::verify(&func).expect("a function that obeys the laws of tile IR");
    func
}

/// Small integers, so that sums are exact in any order.
fn small(i: usize) -> f64 {
    (i * 7 % 11) as f64 - 5.0
}

/// A launch with two by two tiles and so many iterations, on one block.
fn launch(func: &Func, iterations: usize) -> Launch {
    let (rows, inner) = (2 * EXTENT as usize, iterations * EXTENT as usize);
    let launch = Launch::new([2, 2, 1], WARPS);
    let operands = launch.view(func, "a", &[rows, inner], small).view(func, "b", &[inner, rows], small);
    operands.view(func, "out", &[rows, rows], |_| -1.0)
}

#[test]
fn a_product_is_evaluated() {
    let func = func(PRODUCT);
    let (rows, inner) = (2 * EXTENT as usize, 3 * EXTENT as usize);
    let memory = reference(&func, &launch(&func, 3)).expect("a kernel that runs");
    let found = &memory[&func.views[2].memory].elements;
    for (row, column) in (0..rows).flat_map(|row| (0..rows).map(move |column| (row, column))) {
        let sum: f64 = (0..inner).map(|k| small(row * inner + k) * small(k * rows + column)).sum();
        assert_eq!(found.get(row * rows + column).float(), sum, "{row} {column}");
    }
}

#[test]
fn a_schedule_does_what_the_kernel_does() {
    let laid_out = func(PRODUCT);
    for dots in [Dots::Waited, Dots::InFlight] {
        let scheduled = scheduled(&laid_out, dots);
        verify_schedule(&scheduled, WARPS).expect("a schedule that obeys the laws");
        for iterations in [0, 1, STAGES - 1, STAGES, STAGES + 3] {
            for blocks in [1, 3] {
                let mut launch = launch(&laid_out, iterations as usize);
                launch.blocks = blocks;
                check_schedule(&scheduled, &laid_out, &launch, 0.0)
                    .unwrap_or_else(|fault| panic!("{iterations} iterations, {blocks} blocks: {fault}"));
            }
        }
    }
}

// ---- planted errors

/// Changes the operations of every block within a role.
fn in_role(func: &mut Func, role: Role, change: &mut dyn FnMut(&mut Vec<Op>)) {
    fn all(block: &mut Block, change: &mut dyn FnMut(&mut Vec<Op>)) {
        change(&mut block.ops);
        for op in &mut block.ops {
            op.kind.operation_mut().blocks_mut().into_iter().for_each(|block| all(block, change));
        }
    }
    let roles = func.body.ops.iter_mut().find_map(|op| {
        let Kind::WarpSpecialize(roles) = &mut op.kind else { return None };
        Some(roles)
    });
    let roles = roles.expect("the schedule has roles");
    all(if role == Role::Producer { &mut roles.producer } else { &mut roles.consumer }, change);
}

/// Changes every operation of a kind within a role.
macro_rules! each {
    ($func:expr, $role:ident, $kind:ident, |$own:ident| $change:expr) => {
        in_role($func, Role::$role, &mut |ops| {
            for op in ops {
                if let Kind::$kind($own) = &mut op.kind {
                    $change;
                }
            }
        })
    };
}

/// Takes operations of a kind out of a role.
macro_rules! without {
    ($func:expr, $role:ident, $kind:ident) => {
        in_role($func, Role::$role, &mut |ops| ops.retain(|op| !matches!(op.kind, Kind::$kind(_))))
    };
}

/// Moves operations of a kind in front of the first operation of another kind in their block.
macro_rules! move_before {
    ($func:expr, $role:ident, $kind:ident, $before:ident) => {
        in_role($func, Role::$role, &mut |ops| {
            let Some(to) = ops.iter().position(|op| matches!(op.kind, Kind::$before(_))) else { return };
            if let Some(from) = ops.iter().position(|op| matches!(op.kind, Kind::$kind(_))) {
                let op = ops.remove(from);
                ops.insert(to, op);
            }
        })
    };
}

/// What a barrier value's type becomes: the function is built anew with it.
fn with_arrivals(func: &mut Func, which: usize, arrivals: u32) {
    let is_alloc = |op: &&mut Op| matches!(op.kind, Kind::MbarAlloc(_));
    let op = func.body.ops.iter_mut().filter(is_alloc).nth(which).expect("a barrier");
    let old = op.results[0];
    let storage = Storage::Mbarrier { stages: STAGES, arrivals, cluster: false };
    let ty = func.ty(old).stored(storage);
    let new = func.value(ty);
    let op = func.body.ops.iter_mut().find(|op| op.results.contains(&old)).expect("a barrier");
    op.results[0] = new;
    ir::substitute(func, old, new);
}

/// An error by name, and what plants it.
type PlantedError<'a> = (&'a str, &'a dyn Fn(&mut Func));

/// What the verifier and the simulator say of a product with an error.
fn check_errors(dots: Dots, cases: &[PlantedError], expected: Expect) {
    let laid_out = func(PRODUCT);
    let mut found = String::new();
    for (name, plant) in cases {
        let mut broken = scheduled(&laid_out, dots);
        plant(&mut broken);
        ir::verify(&broken).expect("a function that obeys the laws of tile IR");
        let verified = verify_schedule(&broken, WARPS);
        let launch = launch(&laid_out, STAGES as usize + 3);
        let simulated = check_schedule(&broken, &laid_out, &launch, 0.0).map_err(|fault| fault.0);
        assert!(verified.is_err() || simulated.is_err(), "{name} is not found");
        let texts = [verified, simulated].map(|result| result.err().unwrap_or("nothing".into()));
        let [verifier, simulator] = texts.map(|text| text.replace('\n', "\n    "));
        found += &format!("{name}\n  verifier: {verifier}\n  simulator: {simulator}\n");
    }
    expected.assert_eq(&found);
}

#[test]
fn missing_and_misplaced_waits_are_found() {
    check_errors(
        Dots::Waited,
        &[
            ("consumers do not wait", &|func| without!(func, Consumer, MbarWait)),
            ("the producer does not wait", &|func| without!(func, Producer, MbarWait)),
            ("consumers do not release", &|func| without!(func, Consumer, MbarArrive)),
            ("a release before the dot", &|func| move_before!(func, Consumer, MbarArrive, Wgmma)),
            ("a release before the wait for the dot", &|func| {
                move_before!(func, Consumer, MbarArrive, DotWait)
            }),
            ("loads before the wait", &|func| move_before!(func, Producer, TmaLoad, MbarWait)),
            ("the wait leaves the dot in flight", &|func| {
                each!(func, Consumer, DotWait, |wait| wait.pending = 1)
            }),
            ("nothing is published", &|func| without!(func, Producer, Publish)),
        ],
        expect![[r#"
            consumers do not wait
              verifier: `%55 = wgmma %12[%53], %13[%53] add %52 k 0..32 async`: reads a stage of %12 without a wait on its full barrier
              simulator: consumer warpgroup 0: `%55 = wgmma %12[%53], %13[%53] add %52 k 0..32 async` reads stage 0 of %12, into which nothing was loaded
            the producer does not wait
              verifier: `tma_load a(%21, %32) map 0 to %12[%31] signal %14`: fills a stage without a wait on its empty barrier
              simulator: producer: `tma_load a(%21, %32) map 0 to %12[%31] signal %14` refills stage 0 of %12 without having waited for its release behind `%55 = wgmma %12[%53], %13[%53] add %52 k 0..32 async`
            consumers do not release
              verifier: `mbar_wait %15[%31]`: the producer waits, and nobody else arrives there
              simulator: deadlock
                producer: `mbar_wait %15[%31]` waits for stage 0, phase 0: 8 arrivals and 0 bytes are missing
                consumer warpgroup 0: `mbar_wait %14[%53]` waits for stage 0, phase 1: 1 arrivals and 0 bytes are missing
                consumer warpgroup 1: `mbar_wait %14[%53]` waits for stage 0, phase 1: 1 arrivals and 0 bytes are missing
            a release before the dot
              verifier: `%55 = wgmma %12[%53], %13[%53] add %52 k 0..32 async`: reads a stage of %12 behind its release
              simulator: producer: `tma_load a(%21, %32) map 0 to %12[%31] signal %14` refills stage 0 of %12 without having waited for its release behind `%55 = wgmma %12[%53], %13[%53] add %52 k 0..32 async`
            a release before the wait for the dot
              verifier: `mbar_arrive %15[%53]`: releases a stage while `%55 = wgmma %12[%53], %13[%53] add %52 k 0..32 async` may read it
              simulator: producer: `tma_load a(%21, %32) map 0 to %12[%31] signal %14` refills stage 0 of %12 without having waited for its release behind `%55 = wgmma %12[%53], %13[%53] add %52 k 0..32 async`
            loads before the wait
              verifier: `tma_load a(%21, %32) map 0 to %12[%31] signal %14`: fills a stage without a wait on its empty barrier
              simulator: producer: `tma_load a(%21, %32) map 0 to %12[%31] signal %14` refills stage 0 of %12 without having waited for its release behind `%55 = wgmma %12[%53], %13[%53] add %52 k 0..32 async`
            the wait leaves the dot in flight
              verifier: `mbar_arrive %15[%53]`: releases a stage while `%55 = wgmma %12[%53], %13[%53] add %52 k 0..32 async` may read it
              simulator: producer: `tma_load a(%21, %32) map 0 to %12[%31] signal %14` refills stage 0 of %12 without having waited for its release behind `%55 = wgmma %12[%53], %13[%53] add %52 k 0..32 async`
            nothing is published
              verifier: nothing
              simulator: deadlock
                producer: `mbar_wait %15[%31]` waits for stage 0, phase 0: 8 arrivals and 0 bytes are missing
                consumer warpgroup 0: `work_tiles consumer at 65536 carry %34` waits for a work tile that is not published
                consumer warpgroup 1: `work_tiles consumer at 65536 carry %34` waits for a work tile that is not published
        "#]],
    );
}

#[test]
fn wrong_phases_and_counts_are_found() {
    check_errors(
        Dots::Waited,
        &[
            ("the producer starts as a consumer", &|func| {
                each!(func, Producer, PipeStart, |start| start.role = Role::Consumer);
            }),
            ("consumers start as the producer", &|func| {
                each!(func, Consumer, PipeStart, |start| start.role = Role::Producer);
            }),
            ("consumers stay at a stage", &|func| {
                each!(func, Consumer, Loop, |body| body.body.yields[1] = body.body.args[2]);
            }),
            ("too few arrivals release a stage", &|func| with_arrivals(func, 1, WARPS / 2)),
            ("too many arrivals release a stage", &|func| with_arrivals(func, 1, WARPS + 4)),
            ("more bytes are expected", &|func| each!(func, Producer, ExpectTx, |expect| expect.bytes += 64)),
            ("fewer bytes are expected", &|func| {
                each!(func, Producer, ExpectTx, |expect| expect.bytes = BYTES)
            }),
            ("consumers wait for the release", &|func| {
                let empty = func.body.ops.iter().filter(|op| matches!(op.kind, Kind::MbarAlloc(_))).nth(1);
                let empty = empty.expect("a barrier").results[0];
                each!(func, Consumer, MbarWait, |wait| wait.barrier.buffer = empty);
            }),
        ],
        expect![[r#"
            the producer starts as a consumer
              verifier: nothing
              simulator: deadlock
                producer: `mbar_wait %15[%31]` waits for stage 0, phase 0: 8 arrivals and 0 bytes are missing
                consumer warpgroup 0: `mbar_wait %14[%53]` waits for stage 0, phase 0: 1 arrivals and 0 bytes are missing
                consumer warpgroup 1: `mbar_wait %14[%53]` waits for stage 0, phase 0: 1 arrivals and 0 bytes are missing
            consumers start as the producer
              verifier: nothing
              simulator: consumer warpgroup 0: `%55 = wgmma %12[%53], %13[%53] add %52 k 0..32 async` reads stage 0 of %12, into which nothing was loaded
            consumers stay at a stage
              verifier: `%55 = wgmma %12[%53], %13[%53] add %52 k 0..32 async`: reads a stage of %12 behind its release
              simulator: deadlock
                producer: `mbar_wait %15[%31]` waits for stage 0, phase 0: 8 arrivals and 0 bytes are missing
                consumer warpgroup 0: `work_tiles consumer at 65536 carry %34` waits for a work tile that is not published
                consumer warpgroup 1: `work_tiles consumer at 65536 carry %34` waits for a work tile that is not published
            too few arrivals release a stage
              verifier: a phase of %15 takes 4 arrivals, and consumer arrives 8 times
              simulator: deadlock
                producer: `mbar_wait %15[%31]` waits for stage 0, phase 0: 4 arrivals and 0 bytes are missing
                consumer warpgroup 0: `mbar_wait %14[%53]` waits for stage 0, phase 1: 1 arrivals and 0 bytes are missing
                consumer warpgroup 1: `mbar_wait %14[%53]` waits for stage 0, phase 1: 1 arrivals and 0 bytes are missing
            too many arrivals release a stage
              verifier: a phase of %15 takes 12 arrivals, and consumer arrives 8 times
              simulator: deadlock
                producer: `mbar_wait %15[%31]` waits for stage 0, phase 0: 4 arrivals and 0 bytes are missing
                consumer warpgroup 0: `mbar_wait %14[%53]` waits for stage 0, phase 1: 1 arrivals and 0 bytes are missing
                consumer warpgroup 1: `mbar_wait %14[%53]` waits for stage 0, phase 1: 1 arrivals and 0 bytes are missing
            more bytes are expected
              verifier: `mbar_expect %14[%31] bytes 4160`: 64 of these bytes are not loaded
              simulator: deadlock
                producer: `mbar_wait %15[%31]` waits for stage 0, phase 0: 8 arrivals and 0 bytes are missing
                consumer warpgroup 0: `mbar_wait %14[%53]` waits for stage 0, phase 0: 0 arrivals and 64 bytes are missing
                consumer warpgroup 1: `mbar_wait %14[%53]` waits for stage 0, phase 0: 0 arrivals and 64 bytes are missing
            fewer bytes are expected
              verifier: `tma_load b(%32, %25) map 1 to %13[%31] signal %14`: loads 2048 bytes more than are expected
              simulator: consumer warpgroup 0: `%55 = wgmma %12[%53], %13[%53] add %52 k 0..32 async` reads stage 0 of %13, into which nothing was loaded
            consumers wait for the release
              verifier: `mbar_wait %15[%53]`: the consumer waits, and nobody else arrives there
              simulator: deadlock
                producer: `mbar_wait %15[%31]` waits for stage 0, phase 0: 8 arrivals and 0 bytes are missing
                consumer warpgroup 0: `mbar_wait %15[%53]` waits for stage 0, phase 0: 8 arrivals and 0 bytes are missing
                consumer warpgroup 1: `mbar_wait %15[%53]` waits for stage 0, phase 0: 8 arrivals and 0 bytes are missing
        "#]],
    );
}

#[test]
fn errors_of_dots_in_flight_are_found() {
    check_errors(
        Dots::InFlight,
        &[
            ("the release is of this iteration", &|func| {
                in_role(func, Role::Consumer, &mut |ops| {
                    let pipe = ops.iter().find_map(|op| {
                        let Kind::Wgmma(dot) = &op.kind else { return None };
                        dot.b.stage().map(|stage| stage.pipe)
                    });
                    for op in ops {
                        if let (Kind::MbarArrive(arrive), Some(pipe)) = (&mut op.kind, pipe) {
                            arrive.barrier.pipe = pipe;
                        }
                    }
                });
            }),
            ("two dots stay in flight", &|func| {
                each!(func, Consumer, DotWait, |wait| wait.pending = (wait.pending + 1).min(2));
            }),
            ("the first release is of no dot", &|func| {
                each!(func, Consumer, MbarArrive, |arrive| arrive.only_if = None);
            }),
            ("the first dot adds to what is there", &|func| {
                each!(func, Consumer, Wgmma, |dot| dot.accumulates = None);
            }),
        ],
        expect![[r#"
            the release is of this iteration
              verifier: `mbar_arrive %15[%56] if %59`: releases a stage while `%60 = wgmma %12[%56], %13[%56] add %54 if %59 k 0..32 async` may read it
              simulator: deadlock
                producer: `mbar_wait %15[%31]` waits for stage 0, phase 0: 8 arrivals and 0 bytes are missing
                consumer warpgroup 0: `mbar_wait %14[%56]` waits for stage 0, phase 1: 1 arrivals and 0 bytes are missing
                consumer warpgroup 1: `mbar_wait %14[%56]` waits for stage 0, phase 1: 1 arrivals and 0 bytes are missing
            two dots stay in flight
              verifier: `mbar_arrive %15[%55] if %59`: releases a stage while `%60 = wgmma %12[%56], %13[%56] add %54 if %59 k 0..32 async` may read it
              simulator: producer: `tma_load a(%21, %32) map 0 to %12[%31] signal %14` refills stage 0 of %12 without having waited for its release behind `%60 = wgmma %12[%56], %13[%56] add %54 if %59 k 0..32 async`
            the first release is of no dot
              verifier: nothing
              simulator: deadlock
                producer: `mbar_wait %15[%31]` waits for stage 0, phase 0: 8 arrivals and 0 bytes are missing
                consumer warpgroup 0: `mbar_wait %14[%56]` waits for stage 0, phase 1: 1 arrivals and 0 bytes are missing
                consumer warpgroup 1: `mbar_wait %14[%56]` waits for stage 0, phase 1: 1 arrivals and 0 bytes are missing
            the first dot adds to what is there
              verifier: nothing
              simulator: consumer warpgroup 0: `%60 = wgmma %12[%56], %13[%56] add %54 k 0..32 async` adds to poison
        "#]],
    );
}

#[test]
fn buffers_and_registers_fit() {
    let place = |func: &mut Func, which: usize, address: u32, stride: u32| {
        let mut buffers = func.body.ops.iter_mut().filter_map(|op| {
            let Kind::SmemAlloc(alloc) = &mut op.kind else { return None };
            Some(alloc)
        });
        *buffers.nth(which).expect("a buffer") = SmemAlloc { address, stride };
    };
    let registers = |func: &mut Func, registers: [u32; 2]| {
        for op in &mut func.body.ops {
            if let Kind::WarpSpecialize(roles) = &mut op.kind {
                roles.registers = Some(registers);
            }
        }
    };
    check_errors(
        Dots::Waited,
        &[
            ("overlapping stages", &|func| place(func, 0, 0, BYTES)),
            ("a buffer over barriers", &|func| place(func, 0, 39936, 65536)),
            ("a misaligned buffer", &|func| place(func, 0, 16, 2 * BYTES)),
            ("a buffer over the work tiles", &|func| place(func, 0, 65536, 2 * BYTES)),
            ("buffers that do not fit", &|func| place(func, 0, 131072, 65536)),
            ("too many registers", &|func| registers(func, [40, 240])),
            ("an odd number of registers", &|func| registers(func, [24, 236])),
        ],
        expect![[r#"
            overlapping stages
              verifier: stage 1 of %12 at 2048..4096 overlaps stage 0 of %13 at 2048
              simulator: nothing
            a buffer over barriers
              verifier: stage 0 of %12 at 39936..41984 overlaps %14 at 40960
              simulator: nothing
            a misaligned buffer
              verifier: `%12 = smem_alloc at 16 stride 4096`: stage 0 is at 16, no multiple of 1024
              simulator: nothing
            a buffer over the work tiles
              verifier: the work tiles at 65536..65568 overlaps stage 0 of %12 at 65536
              simulator: nothing
            buffers that do not fit
              verifier: stage 2 of %12 ends at 264192, behind the 232448 bytes of shared memory
              simulator: nothing
            too many registers
              verifier: `warp_specialize`: all threads have 66560 registers, more than 65536
              simulator: nothing
            an odd number of registers
              verifier: `warp_specialize`: a thread cannot have 236 registers
              simulator: nothing
        "#]],
    );
}
