(* Runs the models on a history that it reads, one line after the other:

     keys <algorithm> <limit> <window> <parameter> <lease> ..   begins a history with these keys
     check <time> <cost> <most> ..                              a check with a charge of each key

   and answers each check with a line: 1 if it was admitted, then for each key the units that were spent,
   remaining, next_after, reset_after and retry_after (-1 if there is none).

     changing <algorithm>                                       begins a history of one key, whose quota changes
     charge <time> <limit> <window> <parameter> <cost>          a check under a quota
     refund <time> <limit> <window> <parameter> <charge> <most> refunds the charge of this number

   are answered in the same way: 1 if it was admitted or is a refund, the units that were spent or refunded,
   and so on. The admitted charges have the numbers 0, 1, 2 ..

   Steps is extracted from the proofs. This file only reads and prints. *)

open Steps

let rec positive n =
  if n = 1 then XH else if n land 1 = 1 then XI (positive (n lsr 1)) else XO (positive (n lsr 1))

let z n = if n = 0 then Z0 else if n > 0 then Zpos (positive n) else Zneg (positive (-n))

let rec of_positive = function
  | XH -> 1
  | XO p -> 2 * of_positive p
  | XI p -> (2 * of_positive p) + 1

let int = function Z0 -> 0 | Zpos p -> of_positive p | Zneg p -> -of_positive p

let algorithm name parameter =
  match name with
  | "log" -> Log
  | "buckets" -> Buckets (z parameter)
  | "counter" -> Counter
  | "bucket" -> Bucket (z parameter)
  | "window" -> Window
  | other -> failwith ("unknown algorithm: " ^ other)

let rec keys = function
  | [] -> []
  | name :: limit :: window :: parameter :: lease :: rest ->
      let number text = int_of_string text in
      let kind = algorithm name (number parameter) in
      let m = machine_of kind (z (number limit)) (z (number window)) (z (number lease)) in
      Key (m, empty m) :: keys rest
  | _ -> failwith "a key has five words"

let rec asks = function
  | [] -> []
  | cost :: most :: rest -> (z (int_of_string cost), z (int_of_string most)) :: asks rest
  | _ -> failwith "a charge has two words"

let answer before asked now =
  let is_admitted = admitted before asked now in
  let later = check before asked now in
  let line ((old, ask), Key (m, s)) =
    let units = if is_admitted then int (spends now (old, ask)) else 0 in
    let waiting = if units > 0 then Z0 else fst ask in
    let ((remaining, next), reset), retry = standing m s now waiting in
    let retry = match retry with Some wait -> int wait | None -> -1 in
    Printf.printf " %d %d %d %d %d" units (int remaining) (int next) (int reset) retry
  in
  print_string (if is_admitted then "1" else "0");
  List.iter line (List.combine (List.combine before asked) later);
  print_newline ();
  later

(* A key whose quota changes: its state, and the receipts of its charges, the newest first. *)
type changing = Changing of limiter * kept * receipt list

let quota limit window parameter =
  let number text = z (int_of_string text) in
  { limit = number limit; window = number window; parameter = number parameter }

let print_standing m q s now cost ok units =
  let ((remaining, next), reset), retry = standing_under m q s now cost in
  let retry = match retry with Some wait -> int wait | None -> -1 in
  Printf.printf "%d %d %d %d %d %d\n%!" ok units (int remaining) (int next) (int reset) retry

let charge (Changing (m, s, receipts)) now q cost =
  match try_charge m q s now cost with
  | Some (later, mark) ->
      print_standing m q later now Z0 1 (int cost);
      Changing (m, later, { charged_under = q; left_mark = mark } :: receipts)
  | None ->
      print_standing m q s now cost (if cost = Z0 then 1 else 0) 0;
      Changing (m, s, receipts)

let refund (Changing (m, s, receipts)) now q number most =
  let receipt = List.nth receipts (List.length receipts - 1 - number) in
  let later, units = refund_under m q s now receipt most in
  print_standing m q later now Z0 1 (int units);
  Changing (m, later, receipts)

let rec run_changing key =
  match input_line stdin with
  | exception End_of_file -> ()
  | line -> (
      let number text = z (int_of_string text) in
      match String.split_on_char ' ' line with
      | [ "changing"; name ] -> run_changing (start name)
      | [ "charge"; now; l; w; p; cost ] ->
          run_changing (charge key (number now) (quota l w p) (number cost))
      | [ "refund"; now; l; w; p; which; most ] ->
          run_changing (refund key (number now) (quota l w p) (int_of_string which) (number most))
      | _ -> failwith ("unknown line: " ^ line))

and start name =
  let m = changing_of (algorithm name 0) in
  Changing (m, unused m, [])

let rec run current =
  match input_line stdin with
  | exception End_of_file -> ()
  | line -> (
      match String.split_on_char ' ' line with
      | "keys" :: rest -> run (keys rest)
      | "check" :: now :: rest -> run (answer current (asks rest) (z (int_of_string now)))
      | [ "changing"; name ] -> run_changing (start name)
      | _ -> failwith ("unknown line: " ^ line))

let () = run []
