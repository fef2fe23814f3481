//! Elementary functions on the host, at every level of CPU, against an oracle of more precision: within the bound
//! that the operation table publishes, and exact where a value is special.

use expect_test::expect;
use tile_ir::ops::scalar::{self, ScalarOp};
use tile_ir::testing::func;
use tile_ir::transform::legalize_index::{BoundsPolicy, legalize_index};

use super::oracle::{self, Scaled};
use super::run::{Arg, Loaded, load};
use lowering::backend::host_asm;
use lowering::backend::host_asm::Family;
use lowering::backend::nvptx;
use lowering::backend::nvptx::Arch;
use lowering::cpu::emit::CpuPlan;
use lowering::driver::specialize::{KernelRequests, specializations};
use lowering::mlir::Session;

const CHUNK: usize = 1 << 16;

/// The row of a function or an operator.
fn row(name: &str) -> &'static ScalarOp {
    scalar::functions::named(name).or_else(|| scalar::row(name)).expect("a row")
}

/// How it is written.
fn expression(name: &str, operands: &[String]) -> String {
    match row(name).binary {
        Some(operator) => operands.join(&format!(" {} ", operator.symbol())),
        None => format!("tl::{name}({})", operands.join(", ")),
    }
}

/// A kernel that applies a function to every element of its operands.
fn source(name: &str, dtype: &str) -> String {
    let params = row(name).params;
    let slices: String = params.iter().map(|param| format!("{param}: &[T], ")).collect();
    let loads: Vec<String> = params.iter().map(|param| format!("tl::load({param} + i, i < n)")).collect();
    let value = expression(name, &loads);
    format!(
        "#[fuse_kernel(T = [{dtype}])]
        pub fn apply<T: Float>({slices}out: &mut [T], n: i32) {{
            let i = tl::program_id(0) * 1024 + tl::arange(0, 1024);
            tl::store(out + i, {value}, i < n);
        }}"
    )
}

fn kernel(name: &str, dtype: &str) -> Vec<Loaded> {
    load(&source(name, dtype))
}

/// The distance of `got` from `want` in units in the last place of an `f32` of `want`'s size; what overflows counts as
/// 2^128.
pub(super) fn ulps(got: f32, want: f64) -> f64 {
    if got.is_nan() || want.is_nan() {
        return if got.is_nan() == want.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if want == 0.0 && (got != 0.0 || got.is_sign_negative() != want.is_sign_negative()) {
        return f64::INFINITY;
    }
    let top = 2.0f64.powi(128);
    let (got, want) = (f64::from(got).clamp(-top, top), want.clamp(-top, top));
    let exponent = ((want.abs().to_bits() >> 52) as i32 - 1023).clamp(-126, 127);
    (got - want).abs() / 2.0f64.powi(exponent - 23)
}

/// How many units of a result are one of the row's bound, given the least exponent of a unit's number.
fn bound_units(row: &ScalarOp, x: &[f64], want: f64, least: i32) -> f64 {
    let floor = row.error_floor.as_ref().map_or(0.0, |floor| (floor.function)(x));
    if !want.is_finite() || !floor.is_finite() || floor <= want.abs() {
        return 1.0;
    }
    let exponent = |number: f64| ((number.abs().to_bits() >> 52) as i32 - 1023).max(least);
    2.0f64.powi(exponent(floor) - exponent(want))
}

/// The worst error of a function over some arguments, for each level.
struct Worst<const N: usize> {
    level: &'static str,
    ulps: f64,
    at: [f32; N],
    got: f32,
}

impl<const N: usize> std::fmt::Display for Worst<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Worst { level, ulps, at, got } = self;
        let bits = at.map(f32::to_bits);
        write!(f, "{level}: {ulps:.3} ulp at {at:?} ({bits:x?}), which gave {got:e}")
    }
}

fn worst_f32<const N: usize>(name: &str, arguments: impl Iterator<Item = [f32; N]>) -> Vec<Worst<N>> {
    let row = row(name);
    let oracle = row.float.expect("a float function").function;
    let loaded = kernel(name, "f32");
    let worst = |code: &Loaded| Worst { level: code.level.name(), ulps: -1.0, at: [0.0; N], got: 0.0 };
    let mut worst: Vec<Worst<N>> = loaded.iter().map(worst).collect();
    let mut arguments = arguments.peekable();
    let mut out = vec![0.0f32; CHUNK];
    while arguments.peek().is_some() {
        let x: Vec<[f32; N]> = arguments.by_ref().take(CHUNK).collect();
        let want: Vec<f64> = x.iter().map(|x| oracle(&x.map(f64::from))).collect();
        let mut operands: [Vec<f32>; N] = std::array::from_fn(|i| x.iter().map(|x| x[i]).collect());
        for (code, worst) in loaded.iter().zip(&mut worst) {
            let grid = [x.len().div_ceil(1024) as u32, 1, 1];
            let out = &mut out[..x.len()];
            let mut args: Vec<Arg> = operands.iter_mut().map(|operand| Arg::F32(operand)).collect();
            args.extend([Arg::F32(out), Arg::Scalar(x.len() as u64)]);
            code.call(grid, &mut args);
            for ((&x, &got), &want) in x.iter().zip(&*out).zip(&want) {
                let ulps = ulps(got, want) / bound_units(row, &x.map(f64::from), want, -126);
                if ulps > worst.ulps {
                    *worst = Worst { ulps, at: x, got, ..*worst };
                }
            }
        }
    }
    worst
}

#[expect(clippy::print_stdout, reason = "the report of the worst error")]
fn check_f32<const N: usize>(name: &str, arguments: impl Iterator<Item = [f32; N]>) {
    let bound = row(name).ulp.f32;
    let worst = worst_f32(name, arguments);
    let text: Vec<String> = worst.iter().map(Worst::to_string).collect();
    println!("{name} of f32: {}", text.join("; "));
    assert!(
        worst.iter().all(|worst| worst.ulps <= bound),
        "{name} is beyond {bound} ulp: {}",
        text.join("; ")
    );
}

/// Every `bf16`, which is every special value and every size of number, the number before each, and bit patterns of all kinds between
/// them.
fn arguments_f32() -> impl Iterator<Item = [f32; 1]> {
    let bf16 = (0..=0xffffu32).flat_map(|bits| [bits << 16, bits << 16 | 0xffff]);
    let stride = 1021;
    bf16.chain((0..u32::MAX / stride).map(move |i| i * stride)).map(|bits| [f32::from_bits(bits)])
}

/// Numbers at which functions of two operands change what they do, of both signs.
const ENDS: [f64; 24] = [
    0.0,
    5e-324,
    1e-310,
    1e-45,
    1e-40,
    1.2e-38,
    1e-20,
    0.25,
    0.5,
    0.75,
    1.0,
    1.0000001,
    1.5,
    2.0,
    2.5,
    3.0,
    17.0,
    8388609.0,
    16777217.0,
    1e20,
    3.4e38,
    1e300,
    f64::INFINITY,
    f64::NAN,
];

/// Pairs of all ends, of numbers of every size, of numbers of similar size, of numbers near 1 with large ones.
fn pairs() -> impl Iterator<Item = [f64; 2]> {
    let ends = || ENDS.into_iter().flat_map(|end| [end, -end]);
    let mut random = random();
    let mixed = (0..1 << 20).map(move |i| {
        let [x, y] = [random(), random()];
        let fraction = |bits: u64| bits as i64 as f64 * 2.0f64.powi(-63);
        match i % 4 {
            0 => [x, y].map(f64::from_bits),
            // As many sizes of `f32`.
            1 => [x, y].map(|bits| f64::from(f32::from_bits(bits as u32))),
            2 => [4.0 * fraction(x), 150.0 * fraction(y)],
            _ => [1.0 + fraction(x) * 2.0f64.powi(-(i / 4 % 20)), fraction(y) * 2.0f64.powi(4 + i / 4 % 24)],
        }
    });
    ends().flat_map(move |x| ends().map(move |y| [x, y])).chain(mixed)
}

/// Random bits.
fn random() -> impl FnMut() -> u64 {
    let mut state = 1u64;
    move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state ^ state >> 29
    }
}

/// The distance of `got` from `want` in units in the last place of an `f64` of `want`'s size.
fn ulps_f64(got: f64, (want, scale): Scaled) -> f64 {
    let exponent = ((want.high.abs().to_bits() >> 52) as i32 - 1023 + scale).max(-1022);
    if exponent >= 1024 {
        return if got == f64::INFINITY.copysign(want.high) { 0.0 } else { f64::INFINITY };
    }
    let got =
        if got.is_infinite() { 2.0f64.powi(1023 - scale) * 2.0 * got.signum() } else { scaled(got, -scale) };
    let error = (got - want.high) - want.low;
    scaled(error.abs(), scale - (exponent - 52))
}

fn scaled(x: f64, exponent: i32) -> f64 {
    x * 2.0f64.powi(exponent / 2) * 2.0f64.powi(exponent - exponent / 2)
}

/// Every size of number, and many of the sizes at which functions bend.
fn arguments_f64() -> Vec<f64> {
    let mut random = random();
    let high = (0..=0xffffu64).flat_map(|high| [high << 48, high << 48 | 0xffff_ffff_ffff]);
    let mut points: Vec<f64> = high.map(f64::from_bits).collect();
    points.extend((0..1 << 15).map(|_| f64::from_bits(random())));
    for range in [1.5, 8.0, 60.0, 760.0, 1100.0, 1048575.0] {
        points.extend((0..1 << 13).map(|_| range * (random() as i64 as f64) * 2.0f64.powi(-63)));
    }
    points.extend((0..1 << 14).map(|_| 1.0 + (random() as i64 as f64) * 2.0f64.powi(-64)));
    // As near to multiples of pi/2 as numbers come.
    points.extend((1..1 << 13).map(|n| f64::from(n * 81) * std::f64::consts::FRAC_PI_2));
    points
}

/// Sines and cosines of huge numbers, to a hundred bits: the number, the sine in two parts, the cosine in two parts.
/// The fourth is the number that comes nearest to a multiple of `pi/2`.
#[rustfmt::skip]
const HUGE: &[[f64; 5]] = &[
    [1048576.0, 0.3304931400217347, -1.6543399442668335e-17,
     0.943808393901312, -8.729095955788883e-18],
    [1048577.0, 0.9727535843134413, 3.5412478669337354e-17,
     0.23184146351624124, 9.19021653712323e-18],
    [8.547902280186617e+75, 0.22257681118937658, -1.2256616689863119e-17,
     -0.9749151568832893, 2.3083984057998468e-17],
    [5.319372648326541e+255, 1.0, -1.098476220074687e-37,
     -4.687165924254628e-19, 4.3720557429382733e-36],
    [1.7976931348623157e+308, 0.004961954789184062, -2.5049377676494104e-19,
     -0.9999876894265599, -2.6032890267216748e-17],
    [8.98846567431158e+307, 0.563127779850884, -1.1428508797646435e-17,
     -0.826369834614148, 4.103345667279406e-17],
    [1e+22, -0.8522008497671888, -6.7806825896773284e-18,
     0.523214785395139, -4.7143201076575164e-17],
    [1e+300, -0.8178819121159085, -4.78135837440326e-17,
     -0.5753861119575491, 2.6770761918787068e-17],
    [9007199254740992.0, -0.848925964814655, -1.208317900745565e-17,
     -0.5285117844130887, -3.5407039616510736e-17],
    [2.7670116110564327e+19, -0.9993734482285213, -5.259816060935498e-17,
     -0.035393657282556175, 1.4451224627523686e-18],
    [1.0416030574644284e+198, 0.13162437532639062, 4.4298126743631186e-18,
     -0.9912996639865956, -1.8489564451582038e-17],
    [5.328559176460953e+116, -0.7151746338000214, -5.0821629560192673e-17,
     -0.6989458084637215, 2.7668378509583186e-17],
    [5.6894416841270095e+296, -0.7183692268176994, 5.176840289450112e-17,
     0.6956620256714756, -1.4704903149908713e-17],
    [9.824489554123325e+206, 0.2786903895819511, -1.8132637603140387e-17,
     0.9603810008297021, 1.4900073830786618e-17],
    [825072258654655.9, 0.9414902857609938, 7.489656985153802e-18,
     -0.33704011900318664, 7.487256661241695e-18],
    [1.3645747127240973e+245, -0.2196010450554569, -1.694157531140106e-18,
     0.9755897606117805, 1.2377178657817113e-17],
    [1.5257250978736021e+206, 0.2565125407232621, 2.6559675050377148e-17,
     0.9665409026273523, -2.1300064885108757e-17],
    [2.1022665041349595e+54, -0.21925535667984902, -3.1924746015779047e-18,
     -0.9756675092300615, -7.168003136062804e-18],
    [4.080521406648685e+150, 0.8645864744037537, 1.0980365536708269e-18,
     0.5024840577352553, -4.613365959459801e-18],
    [1.4569330493190783e+123, -0.9768403797679776, 4.1457678555806085e-17,
     0.213969325966956, 5.236875303887616e-18],
    [5.381034497490654e+182, -0.8960122313638955, -4.013367862862669e-17,
     -0.4440293698014726, 2.743529394869283e-17],
    [2.186179717271634e+231, 0.8128046768235304, -2.532742994490159e-17,
     -0.5825363141760317, -1.9901230808136516e-17],
    [2.4983445336477094e+92, 0.41768693316774314, -2.4239599984578396e-18,
     -0.9085910113251866, 4.9357827779609873e-17],
    [3.0065959210002043e+273, -0.2391622311023794, 1.3320407147606425e-17,
     0.9709796224505085, 1.3130741055457646e-17],
];

/// The arguments of a function of one operand, and what is known of huge ones.
fn check_one_f64(name: &str, accurate: fn(f64) -> Scaled) {
    let trigonometric = matches!(name, "sin" | "cos" | "tan");
    let mut points: Vec<([f64; 1], Option<Scaled>)> =
        arguments_f64().into_iter().map(|x| ([x], None)).collect();
    points.retain(|([x], _)| !trigonometric || !x.is_finite() || x.abs() < 1048576.0);
    let special = row(name).float.expect("a float function").function;
    // Where a result may overflow: it is the oracle's that counts.
    let (largest, overflow) = if name == "lgamma" { (f64::MAX, 0.0..0.0) } else { (1e308, 700.0..1080.0) };
    for ([x], want) in &mut points {
        let value = special(&[*x]);
        let ordinary =
            x.is_finite() && *x != 0.0 && !value.is_nan() && (value.abs() <= largest && value != 0.0);
        if ordinary || overflow.contains(&x.abs()) && !value.is_nan() {
            *want = Some(accurate(*x));
        }
    }
    for &[huge, sine, sine_low, cosine, cosine_low] in HUGE.iter().filter(|_| trigonometric) {
        let sine = oracle::Double { high: sine, low: sine_low };
        let cosine = oracle::Double { high: cosine, low: cosine_low };
        let value = match name {
            "sin" => sine,
            "cos" => cosine,
            _ => sine / cosine,
        };
        points.push(([huge], Some((value, 0))));
    }
    check_f64(name, &points);
}

/// The pairs of numbers, but for those with a result next to infinity.
fn check_two_f64(name: &str, accurate: fn(f64, f64) -> Scaled) {
    let special = row(name).float.expect("a float function").function;
    let points = pairs().map(|[x, y]| {
        let value = special(&[x, y]);
        let finite = x.is_finite() && y.is_finite() && value.is_finite();
        let ordinary = finite && value != 0.0 && (x != 0.0 || y != 0.0);
        ([x, y], value, ordinary.then(|| accurate(x, y)))
    });
    let points = points.filter(|(_, value, _)| !value.is_finite() || value.abs() <= 1e308);
    let points: Vec<([f64; 2], Option<Scaled>)> = points.map(|(x, _, want)| (x, want)).collect();
    check_f64(name, &points);
}

/// Compares with what is known, and with the table's oracle elsewhere.
#[expect(clippy::print_stdout, reason = "the report of the worst error")]
fn check_f64<const N: usize>(name: &str, points: &[([f64; N], Option<Scaled>)]) {
    let row = row(name);
    let special = row.float.expect("a float function").function;
    let mut operands: [Vec<f64>; N] = std::array::from_fn(|i| points.iter().map(|(x, _)| x[i]).collect());
    for code in kernel(name, "f64") {
        let mut out = vec![0.0f64; points.len()];
        let grid = [points.len().div_ceil(1024) as u32, 1, 1];
        let mut args: Vec<Arg> = operands.iter_mut().map(|operand| Arg::F64(operand)).collect();
        args.extend([Arg::F64(&mut out), Arg::Scalar(points.len() as u64)]);
        code.call(grid, &mut args);
        let mut worst = (-1.0, [0.0; N], 0.0);
        for ((x, want), &got) in points.iter().zip(&out) {
            let exact = special(x);
            let ulps = match want {
                Some(want) => ulps_f64(got, *want) / bound_units(row, x, want.0.high, -1022),
                None if exact.is_nan() && got.is_nan() || exact.to_bits() == got.to_bits() => 0.0,
                None => f64::INFINITY,
            };
            if ulps.is_nan() || ulps > worst.0 {
                worst = (ulps, *x, got);
            }
        }
        let (ulps, x, got) = worst;
        let text =
            format!("{name} of f64, {}: {ulps:.3} ulp at {x:?}, which gave {got:e}", code.level.name());
        println!("{text}");
        assert!(ulps <= row.ulp.f64, "{text}, beyond {}", row.ulp.f64);
    }
}

/// The functions of one operand, then those of two.
macro_rules! functions {
    ($($name:ident $name_f64:ident $all:ident)* ; $($two:ident $two_f64:ident)*) => {
        $(
            #[test]
            fn $name() {
                check_f32(stringify!($name), arguments_f32());
            }

            #[test]
            fn $name_f64() {
                check_one_f64(stringify!($name), oracle::$name);
            }

            #[test]
            #[ignore = "every f32, some minutes; run it optimized"]
            fn $all() {
                check_f32(stringify!($name), (0..=u32::MAX).map(|bits| [f32::from_bits(bits)]));
            }
        )*
        $(
            #[test]
            fn $two() {
                check_f32(stringify!($two), pairs().map(|pair| pair.map(|x| x as f32)));
            }

            #[test]
            fn $two_f64() {
                check_two_f64(stringify!($two), oracle::$two);
            }
        )*

        /// Every function that is tested here.
        const NAMES: &[&str] = &[$(stringify!($name),)* $(stringify!($two),)*];
    };
}

functions! {
    exp exp_f64 every_exp
    exp2 exp2_f64 every_exp2
    expm1 expm1_f64 every_expm1
    sigmoid sigmoid_f64 every_sigmoid
    log log_f64 every_log
    log2 log2_f64 every_log2
    log1p log1p_f64 every_log1p
    sin sin_f64 every_sin
    cos cos_f64 every_cos
    tan tan_f64 every_tan
    asin asin_f64 every_asin
    acos acos_f64 every_acos
    atan atan_f64 every_atan
    sinh sinh_f64 every_sinh
    cosh cosh_f64 every_cosh
    tanh tanh_f64 every_tanh
    asinh asinh_f64 every_asinh
    acosh acosh_f64 every_acosh
    atanh atanh_f64 every_atanh
    erf erf_f64 every_erf
    erfc erfc_f64 every_erfc
    erfinv erfinv_f64 every_erfinv
    rsqrt rsqrt_f64 every_rsqrt
    cbrt cbrt_f64 every_cbrt
    lgamma lgamma_f64 every_lgamma
    ;
    atan2 atan2_f64
    hypot hypot_f64
    pow pow_f64
    rem rem_f64
}

/// No function with a bound is left out.
#[test]
fn every_function_with_a_bound_is_tested() {
    let inexact = scalar::functions::all().filter(|row| row.ulp.f32 > 0.5).map(|row| row.name);
    let missing: Vec<&str> = inexact.filter(|name| !NAMES.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Code for an Arm host, which this CPU may not be, needs no library either: emission would refuse the call.
#[test]
fn on_an_arm_host() {
    let session = Session::new();
    for name in NAMES {
        for dtype in ["f32", "f64"] {
            let mut func = func(&source(name, dtype));
            legalize_index(&mut func, BoundsPolicy::Masked);
            let text = host_asm::emit(&session, &CpuPlan::new(func), "kernel", Family::AArch64);
            assert!(text.is_ok(), "{name} of {dtype}: {text:?}");
        }
    }
}

/// The instructions of PTX that a kernel for one element a thread has.
fn instructions(session: &Session, dtype: &str, value: &str) -> usize {
    let func = func(&format!(
        "#[fuse_kernel(T = [{dtype}])]
        pub fn apply<T: Float>(x: &[T], out: &mut [T]) {{
            let i = tl::program_id(0) * 128 + tl::arange(0, 128);
            let x = tl::load(x + i);
            tl::store(out + i, {value});
        }}"
    ));
    let specializations = specializations(
        &func,
        KernelRequests { num_warps: Some(4), programs: Some(1), ..KernelRequests::default() },
    )
    .expect("bodies that fit");
    let named = [("apply".to_string(), &specializations[0])];
    let texts = nvptx::emit(session, &named, &[Arch::SM_80], None).expect("PTX");
    let lines = texts[0].1.lines().map(str::trim);
    let code: Vec<&str> = lines.filter(|line| line.ends_with(';') && !line.starts_with('.')).collect();
    assert!(!code.iter().any(|line| line.contains("call")), "{value} of {dtype} calls a function");
    code.len()
}

/// What each function costs on a GPU, with its rare paths: instructions of PTX, among which a
/// division of `f64` is one.
#[test]
fn instructions_on_a_gpu() {
    let session = Session::new();
    let bare = ["f32", "f64"].map(|dtype| instructions(&session, dtype, "x"));
    let mut table = String::from("function   f32  f64\n");
    for name in NAMES {
        let operands: Vec<String> =
            ["x", "-x"].iter().take(row(name).params.len()).map(|x| x.to_string()).collect();
        let value = expression(name, &operands);
        let cost = |dtype, bare| instructions(&session, dtype, &value) - bare;
        table += &format!("{name:8} {:5}{:5}\n", cost("f32", bare[0]), cost("f64", bare[1]));
    }
    expect![[r#"
        function   f32  f64
        exp         13   27
        exp2         1   25
        expm1       33   49
        sigmoid     16   33
        log         25   33
        log2        25   42
        log1p       25   33
        sin         83  209
        cos         83  209
        tan         89  211
        asin        31   47
        acos        33   49
        atan        42   53
        sinh        39   55
        cosh        36   52
        tanh        18   49
        asinh       51   48
        acosh       37   47
        atanh       45   40
        erf         21   55
        erfc        79  125
        erfinv      70  290
        rsqrt        1    2
        cbrt        49   88
        lgamma     156  209
        atan2       47   57
        hypot       19   19
        pow        147  169
        rem         21   35
    "#]]
    .assert_eq(&table);
}
